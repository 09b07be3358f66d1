"""The loan book of the host: everything of ComfyUI that the adapter touches.

Each entry says what follows where a version of ComfyUI has no such name. Tests hold the book against a real ComfyUI, and
our own sources against the book. At the start one line is said for each that is missing, and the feature is off.
"""

from __future__ import annotations

import sys

from .loans import Loan, lacking
from .memoryloans import MEMORY

LOANS = (
    Loan("app.logger", "log_startup_warning", "warnings of isolated packs are not repeated at the end of the start", ("msg",)),
    Loan("comfy.cli_args", "args", "workers run with ComfyUI's default flags"),
    Loan("comfy.controlnet", "ControlBase", "control nets may be copied into workers"),
    Loan("comfy.ldm.modules.attention", "optimized_attention", "workers choose their attention by themselves"),
    Loan("comfy.memory_management", "aimdo_enabled", "workers use the ledger"),
    Loan("comfy.model_management", "DISABLE_SMART_MEMORY", "that smart memory is off is not reported"),
    Loan("comfy.model_management", "EXTRA_RESERVED_VRAM", "workers start with ComfyUI's default reserve"),
    Loan("comfy.model_management", "InterruptProcessingException", "a cancelled node of a worker is shown as failed"),
    Loan("comfy.model_management", "processing_interrupted", "Cancel does not reach workers", ()),
    Loan("comfy.model_management", "throw_exception_if_processing_interrupted", "Cancel may be seen twice", ()),
    Loan("comfy.model_management", "vram_state", "workers start with ComfyUI's default VRAM state"),
    Loan("comfy.model_patcher", "ModelPatcher", "models of the host may be copied into workers"),
    Loan("comfy.sd", "CLIP", "text encoders of the host may be copied into workers"),
    Loan("comfy.sd", "VAE", "VAEs of the host may be copied into workers"),
    Loan("comfy.utils", "PROGRESS_BAR_HOOK", "bars of isolated nodes are not shown"),
    Loan("comfy_api.internal", "first_real_override", "ComfyUI does not know nodes of the third kind", ("cls", "name")),
    Loan("comfy_api.latest", "io.ComfyNode", "nodes of the third kind are not registered"),
    Loan("comfy_api.latest", "io.Custom", "nodes of the third kind are not registered", ("io_type",)),
    Loan("comfy_api.latest", "io.Hidden", "hidden values of V3 nodes are None"),
    Loan("comfy_api.latest", "io.HiddenHolder", "hidden values of V3 nodes are None"),
    Loan("comfy_api.latest", "io.Input", "nodes of the third kind are not registered", ("id", "optional", "extra_dict")),
    Loan("comfy_api.latest", "io.NodeInfoV1", "nodes of the third kind are not registered"),
    Loan("comfy_api.latest", "io.NodeOutput", "what V3 nodes return is not understood", ("args", "ui", "expand")),
    Loan("comfy_api.latest", "io.NodeReplace", "node replacements of isolated packs are not registered", ("new_node_id", "old_node_id", "old_widget_ids", "input_mapping", "output_mapping")),
    Loan("comfy_api.latest", "io.Output", "nodes of the third kind are not registered", ("id", "display_name", "tooltip", "is_output_list")),
    Loan("comfy_api.latest", "io.Schema", "nodes of the third kind are not registered", ("node_id", "inputs", "outputs", "hidden")),
    Loan("comfy_api.latest", "io.Schema.get_v1_info", "nodes of the third kind are not registered", ("cls",)),
    Loan("comfy_execution.caching", "BasicCache", "loaders do not run again by themselves after a worker's restart"),
    Loan("comfy_execution.caching", "RAMPressureCache.ram_release", "cached outputs may go that need not, where workers are slow to let go", ("self",)),
    Loan("comfy_execution.caching", "psutil.virtual_memory", "cached outputs may go that need not, where workers are slow to let go", ()),
    Loan("comfy_execution.graph_utils", "GraphBuilder._default_prefix_call_index", "prefixes of expanded graphs are not the host's"),
    Loan("comfy_execution.graph_utils", "GraphBuilder._default_prefix_graph_index", "prefixes of expanded graphs are not the host's"),
    Loan("comfy_execution.graph_utils", "GraphBuilder._default_prefix_root", "prefixes of expanded graphs are not the host's"),
    Loan("comfy_execution.progress", "get_progress_state", "set_progress of isolated nodes is not shown", ()),
    Loan("comfy_execution.progress", "ProgressRegistry.update_progress", "set_progress of isolated nodes is not shown", ("node_id", "value", "max_value", "image")),
    Loan("comfy_execution.utils", "get_executing_context", "nodes of workers do not know their prompt and node", ()),
    Loan("comfyui_version", "__version__", "scans are kept without regard to ComfyUI's version"),
    Loan("execution", "PromptExecutor.execute_async", "loaders do not run again by themselves after a worker's restart", ("prompt", "prompt_id")),
    Loan("execution", "PromptQueue.get_current_queue", "packs in workers do not see the queue", ()),
    Loan("execution", "PromptQueue.get_current_queue_volatile", "workers of queued prompts are not told from others", ()),
    Loan("execution", "PromptQueue.get_flags", "the user's wish for memory does not reach workers", ("reset",)),
    Loan("execution", "PromptQueue.get_history", "packs in workers do not see the history", ("prompt_id", "max_items", "offset")),
    Loan("execution", "PromptQueue.get_tasks_remaining", "packs in workers do not see the queue", ()),
    Loan("execution", "PromptQueue.set_flag", "packs in workers can not free memory", ("name", "data")),
    Loan("folder_paths", "base_path", "workers do not know the base directory"),
    Loan("folder_paths", "folder_names_and_paths", "workers have ComfyUI's default folders"),
    Loan("folder_paths", "get_folder_paths", "scans are made pack by pack", ("folder_name",)),
    Loan("folder_paths", "get_input_directory", "workers have ComfyUI's default folders", ()),
    Loan("folder_paths", "get_output_directory", "workers have ComfyUI's default folders", ()),
    Loan("folder_paths", "get_temp_directory", "workers have ComfyUI's default folders", ()),
    Loan("folder_paths", "get_user_directory", "workers have ComfyUI's default folders", ()),
    Loan("folder_paths", "models_dir", "workers do not know the models folder"),
    Loan("nodes", "NODE_CLASS_MAPPINGS", "which workers a prompt uses is not told"),
    Loan("nodes", "before_node_execution", "what is asked of the host waits for the end of its prompt", ()),
    Loan("server", "PromptServer.add_on_prompt_handler", "isolated packs do not see prompts as they are submitted", ("handler",)),
    Loan("server", "PromptServer.queue_updated", "isolated packs can not announce the queue", ()),
    Loan("server", "PromptServer.send_sync", "messages of isolated packs are dropped", ("event", "data", "sid")),
    *MEMORY,
)

# Attributes that a PromptServer has once it is made, and what follows without them.
SERVER_ATTRIBUTES = {
    "client_id": "isolated nodes do not know the client of their prompt",
    "last_node_id": "isolated nodes do not know the node shown last",
    "loop": "messages of isolated packs are dropped",
    "node_replace_manager": "node replacements of isolated packs are not registered",
    "prompt_queue": "packs in workers do not see the queue",
    "routes": "isolated packs have no routes",
}


def missing() -> list[str]:
    """A line for everything that this ComfyUI lacks, in the modules that it has loaded."""
    lines = [f"this ComfyUI has no {loan.module}.{loan.name}: {loan.without}" for loan in lacking(LOANS)]
    instance = getattr(getattr(sys.modules.get("server"), "PromptServer", None), "instance", None)
    if instance is not None:
        for name, without in SERVER_ATTRIBUTES.items():
            if not hasattr(instance, name):
                lines.append(f"this ComfyUI's server has no {name}: {without}")
    return lines
