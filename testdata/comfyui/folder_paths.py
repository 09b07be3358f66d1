"""Where models, inputs and outputs lie."""

import logging
import os
import time

from comfy.cli_args import args

supported_pt_extensions = {
    ".ckpt",
    ".pt",
    ".pt2",
    ".bin",
    ".pth",
    ".safetensors",
    ".pkl",
    ".sft",
}

base_path = (
    os.path.abspath(args.base_directory)
    if args.base_directory
    else os.path.dirname(os.path.realpath(__file__))
)
models_dir = (
    os.path.abspath(args.models_directory)
    if args.models_directory
    else os.path.join(base_path, "models")
)
output_directory = os.path.join(base_path, "output")
temp_directory = os.path.join(base_path, "temp")
input_directory = os.path.join(base_path, "input")
user_directory = os.path.join(base_path, "user")

folder_names_and_paths = {
    "configs": ([os.path.join(models_dir, "configs")], [".yaml"]),
    "text_encoders": (
        [os.path.join(models_dir, name) for name in ("text_encoders", "clip")],
        supported_pt_extensions,
    ),
    "diffusion_models": (
        [os.path.join(models_dir, name) for name in ("unet", "diffusion_models")],
        supported_pt_extensions,
    ),
    "controlnet": (
        [os.path.join(models_dir, name) for name in ("controlnet", "t2i_adapter")],
        supported_pt_extensions,
    ),
    "diffusers": ([os.path.join(models_dir, "diffusers")], ["folder"]),
    "custom_nodes": ([os.path.join(base_path, "custom_nodes")], set()),
    "datasets": ([os.path.join(base_path, "datasets")], set()),
    "classifiers": ([os.path.join(models_dir, "classifiers")], {""}),
}
for _name in (
    "checkpoints loras vae clip_vision style_models embeddings vae_approx gligen upscale_models "
    "latent_upscale_models hypernetworks photomaker model_patches audio_encoders "
    "background_removal frame_interpolation geometry_estimation optical_flow detection"
).split():
    folder_names_and_paths[_name] = ([os.path.join(models_dir, _name)], supported_pt_extensions)

filename_list_cache = {}


def map_legacy(folder_name):
    """Today's name of a model folder that had another one."""
    return {"unet": "diffusion_models", "clip": "text_encoders"}.get(folder_name, folder_name)


def set_output_directory(output_dir):
    global output_directory
    output_directory = output_dir


def set_temp_directory(temp_dir):
    global temp_directory
    temp_directory = temp_dir


def set_input_directory(input_dir):
    global input_directory
    input_directory = input_dir


def set_user_directory(user_dir):
    global user_directory
    user_directory = user_dir


def get_output_directory():
    return output_directory


def get_temp_directory():
    return temp_directory


def get_input_directory():
    return input_directory


def get_user_directory():
    return user_directory


def get_directory_by_type(type_name):
    """The folder of "output", "temp" or "input", else None."""
    getters = {
        "output": get_output_directory,
        "temp": get_temp_directory,
        "input": get_input_directory,
    }
    getter = getters.get(type_name)
    return None if getter is None else getter()


def annotated_filepath(name):
    """Split "file [input]" into the file's name and its folder; without an annotation, None."""
    for type_name in ("output", "input", "temp"):
        annotation = f"[{type_name}]"
        if name.endswith(annotation):
            return name[: -len(annotation) - 1], get_directory_by_type(type_name)
    return name, None


def is_within_directory(directory, target):
    """Whether a path leads, links resolved, into a folder."""
    try:
        directory, target = os.path.realpath(directory), os.path.realpath(target)
        return os.path.commonpath((directory, target)) == directory
    except ValueError:  # a zero byte, or two drives
        return False


def get_annotated_filepath(name, default_dir=None):
    """The path of an annotated name; raises ValueError when it leads out of its folder."""
    name, base_dir = annotated_filepath(name)
    if base_dir is None:
        base_dir = get_input_directory() if default_dir is None else default_dir
    path = os.path.abspath(os.path.join(base_dir, name))
    if not is_within_directory(base_dir, path):
        raise ValueError(f"Invalid file path: {name!r}")
    return path


def exists_annotated_filepath(name):
    """Whether the file of an annotated name is there."""
    try:
        return os.path.exists(get_annotated_filepath(name))
    except ValueError:
        return False


def add_model_folder_path(folder_name, full_folder_path, is_default=False):
    """Add a folder to the ones searched for a kind of model, in front if it is the default."""
    paths, _ = folder_names_and_paths.setdefault(map_legacy(folder_name), ([], set()))
    if full_folder_path in paths:
        if not is_default:
            return
        paths.remove(full_folder_path)
    paths.insert(0 if is_default else len(paths), full_folder_path)


def get_folder_paths(folder_name):
    """A copy of the folders searched for a kind of model."""
    return list(folder_names_and_paths[map_legacy(folder_name)][0])


def recursive_search(directory, excluded_dir_names=None):
    """The files below a folder, relative to it, and the folders' modification times."""
    if not os.path.isdir(directory):
        return [], {}
    excluded = set(excluded_dir_names or ())
    files, times = [], {directory: os.path.getmtime(directory)}
    for folder, subfolders, names in os.walk(directory, followlinks=True):
        subfolders[:] = [name for name in subfolders if name not in excluded]
        files += [os.path.relpath(os.path.join(folder, name), directory) for name in names]
        for name in subfolders:
            path = os.path.join(folder, name)
            try:
                times[path] = os.path.getmtime(path)
            except FileNotFoundError:
                logging.warning("%s went away while it was searched", path)
    return files, times


def filter_files_extensions(files, extensions):
    """The files, sorted, that have one of the extensions; all of them when there are none."""
    return sorted(
        file for file in files if not extensions or os.path.splitext(file)[1].lower() in extensions
    )


def get_full_path(folder_name, filename):
    """The path of a model file, or None."""
    folder_name = map_legacy(folder_name)
    if folder_name not in folder_names_and_paths:
        return None
    filename = os.path.relpath(os.path.join("/", filename), "/")
    for folder in folder_names_and_paths[folder_name][0]:
        path = os.path.join(folder, filename)
        if os.path.isfile(path):
            return path
    return None


def get_full_path_or_raise(folder_name, filename):
    """The path of a model file; raises FileNotFoundError."""
    path = get_full_path(folder_name, filename)
    if path is None:
        raise FileNotFoundError(
            f"Model in folder '{folder_name}' with filename '{filename}' not found."
        )
    return path


def get_filename_list_(folder_name):
    """The model files of a kind, the folders they came from, and when that was."""
    folders, extensions = folder_names_and_paths[map_legacy(folder_name)]
    found, times = set(), {}
    for folder in folders:
        files, folder_times = recursive_search(folder, excluded_dir_names=[".git"])
        found.update(filter_files_extensions(files, extensions))
        times.update(folder_times)
    return sorted(found), times, time.perf_counter()


def cached_filename_list_(folder_name):
    """What the last search found, unless a folder changed since."""
    folder_name = map_legacy(folder_name)
    cached = filename_list_cache.get(folder_name)
    if cached is None:
        return None
    for folder, modified in cached[1].items():
        if os.path.getmtime(folder) != modified:
            return None
    for folder in folder_names_and_paths[folder_name][0]:
        if os.path.isdir(folder) and folder not in cached[1]:
            return None
    return cached


def get_filename_list(folder_name):
    """The model files of a kind, as a dropdown shows them."""
    folder_name = map_legacy(folder_name)
    found = cached_filename_list_(folder_name)
    if found is None:
        found = filename_list_cache[folder_name] = get_filename_list_(folder_name)
    return list(found[0])


def get_save_image_path(filename_prefix, output_dir, image_width=0, image_height=0):
    """Where the next image of a prefix goes: folder, file name, counter, subfolder, prefix."""
    now = time.localtime()
    values = {
        "width": image_width,
        "height": image_height,
        "year": now.tm_year,
        "month": f"{now.tm_mon:02}",
        "day": f"{now.tm_mday:02}",
        "hour": f"{now.tm_hour:02}",
        "minute": f"{now.tm_min:02}",
        "second": f"{now.tm_sec:02}",
    }
    for name, value in values.items():
        filename_prefix = filename_prefix.replace(f"%{name}%", str(value))
    subfolder, filename = os.path.split(os.path.normpath(filename_prefix))
    folder = os.path.join(output_dir, subfolder)
    if not is_within_directory(output_dir, folder):
        raise Exception("Saving image outside the output folder is not allowed.")
    os.makedirs(folder, exist_ok=True)
    counters = [0]
    for name in os.listdir(folder):
        start, _, rest = name.rpartition(f"{filename}_")
        digits = rest.split(".")[0].split("_")[0]
        if start == "" and name.startswith(f"{filename}_") and digits.isdigit():
            counters.append(int(digits))
    return folder, filename, max(counters) + 1, subfolder, filename_prefix
