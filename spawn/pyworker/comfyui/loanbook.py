"""The loan book of the worker: everything of ComfyUI and its pager that a worker's Python touches.

Each entry says what follows where a version of ComfyUI has no such name. Tests hold the book against a real ComfyUI, and
our own sources against the book. What a worker finds missing goes into its report, and the feature is off.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from .memoryloans import MEMORY


class Loan(NamedTuple):
    """One name of another project. `parameters` are those that we pass by name or position, where it is called."""

    module: str
    name: str
    without: str
    parameters: tuple[str, ...] | None = None


LOANS = (
    Loan("app.logger", "log_startup_warning", "warnings are not repeated at the end of the host's start", ("msg",)),
    Loan("comfy_execution.cache_provider", "register_cache_provider", "providers of cached outputs are not refused", ("provider",)),
    Loan("comfy.cli_args", "args", "the host's flags are not mirrored"),
    Loan("comfy.cli_args", "PerformanceFeature", "--fast is not mirrored"),
    Loan("comfy.ldm.modules.attention", "optimized_attention", "the backend that came of the host's is not reported"),
    Loan("comfy.memory_management", "RAM_CACHE_HEADROOM", "the host's floor of free RAM is not read back"),
    Loan("comfy.memory_management", "aimdo_enabled", "the pager is not used"),
    Loan("comfy.memory_management", "extra_ram_release_callback", "who frees cached outputs is forgotten with the host's floor"),
    Loan("comfy.memory_management", "set_ram_cache_release_state", "the host's floor of free RAM does not count here", ("callback", "headroom")),
    Loan("comfy.model_management", "DIRTY_MMAPS", "mapped pages that were written stay until the pager resets"),
    Loan("comfy.model_management", "DISABLE_SMART_MEMORY", "models stay after a prompt though smart memory is off"),
    Loan("comfy.model_management", "EXTRA_RESERVED_VRAM", "the host's reserve is not in force"),
    Loan("comfy.model_management", "InterruptProcessingException", "a cancelled node is reported as failed"),
    Loan("comfy.model_management", "LoadedModel.model_memory_required", "loads are not asked for", ("device",)),
    Loan("comfy.model_management", "VRAMState", "the host's VRAM state is not in force"),
    Loan("comfy.model_management", "free_model_pins", "whose pins went is not counted"),
    Loan("comfy.model_management", "get_all_torch_devices", "the pager is started for the first device alone", ()),
    Loan("comfy.model_management", "get_torch_device", "the pager is not used", ()),
    Loan("comfy.model_management", "interrupt_current_processing", "a synchronous node does not see a cancel", ("value",)),
    Loan("comfy.model_management", "load_models_gpu", "loads are not asked for", ("models", "memory_required", "minimum_memory_required")),
    Loan("comfy.model_management", "processing_interrupted", "a cancel does not reach a load that waits", ()),
    Loan("comfy.model_management", "set_cudnn_benchmark", "ComfyUI's cuDNN policy is not applied after the pack's", ()),
    Loan("comfy.model_management", "throw_exception_if_processing_interrupted", "progress does not interrupt", ()),
    Loan("comfy.model_management", "vram_state", "the host's VRAM state is not in force"),
    Loan("comfy.model_patcher", "CoreModelPatcher", "the pager is not used"),
    Loan("comfy.model_patcher", "ModelPatcher", "models of the older kind are not recognised as such"),
    Loan("comfy.model_patcher", "ModelPatcher.model_patches_models", "loads are not asked for", ()),
    Loan("comfy.model_patcher", "ModelPatcher.model_size", "a model's handle weighs nothing", ()),
    Loan("comfy.model_patcher", "ModelPatcher.pinned_memory_size", "whose pins went is not counted", ()),
    Loan("comfy.model_patcher", "ModelPatcherDynamic", "the pager is not used"),
    Loan("comfy.model_patcher", "PromptModelTracker", "models that a prompt uses are not marked", ()),
    Loan("comfy.model_patcher", "PromptModelTracker.add", "models that a prompt uses are not marked", ("outputs",)),
    Loan("comfy.model_patcher", "PromptModelTracker.end", "models that a prompt uses are not marked", ()),
    Loan("comfy.model_patcher", "PromptModelTracker.start", "models that a prompt uses are not marked", ()),
    Loan("comfy.controlnet", "ControlBase", "control nets are not recognised as models"),
    Loan("comfy.nested_tensor", "NestedTensor", "nested tensors do not cross"),
    Loan("comfy.sd", "CLIP", "text encoders are not recognised as models"),
    Loan("comfy.sd", "VAE", "VAEs are not recognised as models"),
    Loan("comfy.utils", "set_progress_bar_global_hook", "progress bars are not shown", ("function",)),
    Loan("comfy_aimdo.control", "init", "the pager is not used", ("simple_vram_headroom", "nvml_pressure")),
    Loan("comfy_aimdo.control", "init_device", "the pager's per-device headroom may be lost", ("extra_vram_headroom",)),
    Loan("comfy_aimdo.control", "init_devices", "the pager is not used", ("device_ids",)),
    Loan("comfy_api.internal", "_ComfyNodeInternal", "nodes of the third kind are taken for ones of the first"),
    Loan("comfy_api.internal", "first_real_override", "nodes of the third kind can not be described", ("cls", "name")),
    Loan("comfy_api.internal", "make_locked_method_func", "nodes of the third kind can not be called", ("type_obj", "func", "class_clone")),
    Loan("comfy_api.latest", "io.ComfyNode.FINALIZE_SCHEMA", "input types of V3 nodes do not follow the disk", ()),
    Loan("comfy_api.latest", "io.ComfyNode.GET_BASE_CLASS", "what V3 classes inherit is not told from ComfyUI's own", ()),
    Loan("comfy_api.latest", "io.ComfyNode.GET_SCHEMA", "nodes of the third kind can not be described", ()),
    Loan("comfy_api.latest", "io.ComfyNode.PREPARE_CLASS_CLONE", "nodes of the third kind can not be called", ("v3_data",)),
    Loan("comfy_api.latest", "io.Hidden", "hidden values of V3 nodes are None"),
    Loan("comfy_api.latest", "io.NodeOutput", "what V3 nodes return does not cross"),
    Loan("comfy_api.latest", "io.Schema.get_v1_info", "nodes of the third kind can not be described", ("cls",)),
    Loan("comfy_api.latest._input.curve_types", "LinearCurve", "linear curves do not cross"),
    Loan("comfy_api.latest._input.curve_types", "MonotoneCubicCurve", "cubic curves do not cross"),
    Loan("comfy_api.latest._input.range_types", "RangeInput", "ranges do not cross"),
    Loan("comfy_api.latest._input_impl.video_types", "VideoFromComponents", "videos of frames do not cross"),
    Loan("comfy_api.latest._input_impl.video_types", "VideoFromFile", "videos of files do not cross"),
    Loan("comfy_api.latest._util.geometry_types", "File3D", "files of 3D models do not cross"),
    Loan("comfy_api.latest._util.geometry_types", "MESH", "meshes do not cross"),
    Loan("comfy_api.latest._util.geometry_types", "SPLAT", "splats do not cross"),
    Loan("comfy_api.latest._util.geometry_types", "VOXEL", "voxels do not cross"),
    Loan("comfy_api.latest._util.image_types", "SVG", "vector pictures do not cross"),
    Loan("comfy_api.latest._util.video_types", "VideoComponents", "the parts of videos do not cross"),
    Loan("comfy_execution.graph", "DynamicPrompt", "DYNPROMPT does not cross"),
    Loan("comfy_execution.graph_utils", "ExecutionBlocker", "blockers do not cross", ("message",)),
    Loan("comfy_execution.graph_utils", "GraphBuilder._default_prefix_call_index", "prefixes of expanded graphs are not the host's"),
    Loan("comfy_execution.graph_utils", "GraphBuilder._default_prefix_graph_index", "prefixes of expanded graphs are not the host's"),
    Loan("comfy_execution.graph_utils", "GraphBuilder._default_prefix_root", "prefixes of expanded graphs are not the host's"),
    Loan("comfy_execution.graph_utils", "GraphBuilder.set_default_prefix", "prefixes of expanded graphs are not unique per call", ("prefix_root", "call_index", "graph_index")),
    Loan("comfy_execution.progress", "global_progress_registry", "set_progress of comfy_api is not shown"),
    Loan("comfy_execution.utils", "CurrentNodeContext", "nodes do not know their prompt and node", ("prompt_id", "node_id", "list_index")),
    Loan("folder_paths", "base_path", "the host's base directory is not known"),
    Loan("folder_paths", "filename_list_cache", "a list of files may be older than the host's folders"),
    Loan("folder_paths", "folder_names_and_paths", "the host's folders are not known"),
    Loan("folder_paths", "input_directory", "the host's input folder is not known"),
    Loan("folder_paths", "models_dir", "the host's models folder is not known"),
    Loan("folder_paths", "output_directory", "the host's output folder is not known"),
    Loan("folder_paths", "supported_pt_extensions", "extensions that a pack adds count for one folder alone"),
    Loan("folder_paths", "temp_directory", "the host's temporary folder is not known"),
    Loan("folder_paths", "user_directory", "the host's user folder is not known"),
    Loan("nodes", "NODE_CLASS_MAPPINGS", "core nodes of comfy_extras are not found"),
    Loan("nodes", "init_builtin_extra_nodes", "core nodes of comfy_extras are not found", ()),
    Loan("nodes", "init_public_apis", "older versions of comfy_api are not registered", ()),
    Loan("protocol", "BinaryEventTypes.TEXT", "text on nodes is not shown"),
    *(Loan(*loan) for loan in MEMORY),
)


def resolve(loan: Loan) -> Any:
    """What a loan names in the modules that are loaded. Raises LookupError when it is not there."""
    found: Any = sys.modules.get(loan.module)
    if found is None:
        raise LookupError(loan.module)
    for part in loan.name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise LookupError(f"{loan.module}.{loan.name}") from None
    return found


def missing() -> list[dict[str, str]]:
    """What loaded modules lack, and what follows."""
    found = []
    for loan in LOANS:
        if loan.module in sys.modules:
            try:
                resolve(loan)
            except LookupError:
                found.append({"name": f"{loan.module}.{loan.name}", "without": loan.without})
    return found
