"""Print, as JSON, what the torch-free modules of a ComfyUI tree do with the same questions.

    comfyui_behaviour.py TREE SCRATCH [FLAG...]

SCRATCH is an empty folder to try paths in; FLAGs are given to ComfyUI's own parser.
"""

from __future__ import annotations

import asyncio
import enum
import json
import os
import sys

tree, scratch, flags = sys.argv[1], sys.argv[2], sys.argv[3:]
sys.argv = ["main.py", *flags]
sys.path.insert(0, tree)

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()

import folder_paths  # noqa: E402
from comfy import cli_args  # noqa: E402
from comfy_execution import graph_utils, utils  # noqa: E402


def plain(value):
    """A value as JSON has it; paths below the tree and the scratch folder lose their beginnings."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in sorted(value.items(), key=str)}
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return value.replace(os.path.realpath(tree), "TREE").replace(scratch, "SCRATCH")
    return value


def answer(function, *arguments, **named):
    """What a call returns, or the class of what it raises."""
    try:
        return plain(function(*arguments, **named))
    except Exception as error:
        return f"raises {type(error).__name__}"


def ask_paths():
    for name in ("loras", "loras/deep", "loras/.git", "output/sub"):
        os.makedirs(os.path.join(scratch, name))
    for name in ("loras/a.safetensors", "loras/deep/b.PT", "loras/c.txt", "loras/.git/d.pt"):
        open(os.path.join(scratch, name), "w").close()
    for name in (
        "picture_00001_.png",
        "picture_00041_.png",
        "pictures_00099_.png",
        "picture_x.png",
    ):
        open(os.path.join(scratch, "output", name), "w").close()
    result = {
        name: answer(folder_paths.get_folder_paths, name) for name in ("clip", "unet", "none")
    }
    folder_paths.add_model_folder_path("loras", os.path.join(scratch, "loras"))
    folder_paths.add_model_folder_path("loras", os.path.join(scratch, "first"), is_default=True)
    folder_paths.add_model_folder_path("loras", os.path.join(scratch, "loras"), is_default=True)
    folder_paths.add_model_folder_path("of a pack", scratch)
    folder_paths.set_output_directory(os.path.join(scratch, "output"))
    result["folders"] = plain(folder_paths.folder_names_and_paths)
    result["list"] = [
        answer(folder_paths.get_filename_list, name) for name in ("loras", "loras", "none")
    ]
    for name in ("a.safetensors", "deep/b.PT", "../loras/a.safetensors", "none.pt"):
        result[name] = answer(folder_paths.get_full_path, "loras", name)
        result[f"{name} or"] = answer(folder_paths.get_full_path_or_raise, "loras", name)
    for name in (
        "x.png",
        "x.png [output]",
        "x.png [temp]",
        "x [input]",
        "../x [output]",
        "x [other]",
    ):
        result[f"annotated {name}"] = answer(folder_paths.get_annotated_filepath, name)
        result[f"there {name}"] = answer(folder_paths.exists_annotated_filepath, name)
    for prefix in ("picture", "sub/new", "%width%x%height%", "../out"):
        result[f"save {prefix}"] = answer(
            folder_paths.get_save_image_path, prefix, folder_paths.get_output_directory(), 7, 9
        )
    for kind in ("output", "temp", "input", "other"):
        result[f"kind {kind}"] = answer(folder_paths.get_directory_by_type, kind)
    return result


def ask_graphs():
    graph_utils.GraphBuilder.set_default_prefix("7", 2)
    first, second = graph_utils.GraphBuilder(), graph_utils.GraphBuilder()
    one = first.node("Load", name="x")
    two = first.node("Save", id="out", images=one.out(0), other=1)
    two.set_input("other", None)
    two.set_override_display_id("7")
    again = first.node("Save", id="out")
    lone = second.node("Load")
    second.remove_node("1")
    return {
        "graph": plain(first.finalize()),
        "same": again is two,
        "lone": lone.id,
        "left": plain(second.finalize()),
        "looked up": [first.lookup_node("out") is two, first.lookup_node("none")],
        "links": [
            graph_utils.is_link(value) for value in (["1", 0], ["1", 0.0], ("1", 0), [1, 0], "x")
        ],
    }


def ask_context():
    async def inside(name):
        with utils.CurrentNodeContext("prompt", name, 3):
            await asyncio.sleep(0)
            return plain(utils.get_executing_context()._asdict())

    async def both():
        return await asyncio.gather(inside("a"), inside("b"))

    return [
        answer(utils.get_executing_context),
        asyncio.run(both()),
        answer(utils.get_executing_context),
    ]


def main():
    outputs = [("INFO", None), ("DETAIL", None), ("DEBUG", "file")]
    print(
        json.dumps(
            {
                "flags": plain(vars(cli_args.args)),
                "dynamic": cli_args.enables_dynamic_vram(),
                "levels": [cli_args.get_console_log_level(some) for some in (outputs, outputs[2:])],
                "files": plain(cli_args.get_file_log_outputs(outputs)),
                "paths": ask_paths(),
                "graphs": ask_graphs(),
                "context": ask_context(),
            }
        )
    )


if __name__ == "__main__":
    main()
