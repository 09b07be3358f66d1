"""What a pack may import, and the folders it finds."""

import json
import logging
import os
import sys

import folder_paths

folder_paths.add_model_folder_path("contract_models", os.path.join(folder_paths.models_dir, "contract"))


class _Text:
    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    CATEGORY = "contract/imports"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"seed": ("INT", {"default": 0})}}


class ContractImports(_Text):
    def run(self, seed):
        import comfy.samplers
        import comfy_execution.graph_utils
        import model_management
        import nodes
        import server

        report = {
            "nodes": os.path.basename(nodes.__file__),
            "samplers": "euler" in comfy.samplers.KSampler.SAMPLERS,
            "bare": hasattr(model_management, "get_torch_device"),
            "core": "KSampler" in nodes.NODE_CLASS_MAPPINGS,
            "extra": "PrimitiveString" in nodes.NODE_CLASS_MAPPINGS,
            "own": "ContractImports" in nodes.NODE_CLASS_MAPPINGS,
            "unknown": "NoSuchNodeAnywhere" in nodes.NODE_CLASS_MAPPINGS,
            "server": hasattr(server, "PromptServer"),
            "argv": os.path.basename(sys.argv[0]),
        }
        return (json.dumps(report, sort_keys=True),)


class ContractFolders(_Text):
    def run(self, seed):
        base = folder_paths.base_path
        names = ("checkpoints", "loras", "vae", "custom_nodes", "contract_models", "contract_extra")
        report = {
            "models": os.path.relpath(folder_paths.models_dir, base),
            "input": os.path.relpath(folder_paths.get_input_directory(), base),
            "output": os.path.relpath(folder_paths.get_output_directory(), base),
            "temp": os.path.relpath(folder_paths.get_temp_directory(), base),
            "user": os.path.relpath(folder_paths.get_user_directory(), base),
            "known": sorted(folder_paths.folder_names_and_paths),
            "paths": {
                name: [os.path.relpath(path, base) for path in folder_paths.get_folder_paths(name)]
                for name in names
                if name in folder_paths.folder_names_and_paths
            },
            "extra files": folder_paths.get_filename_list("contract_extra")
            if "contract_extra" in folder_paths.folder_names_and_paths
            else None,
        }
        return (json.dumps(report, sort_keys=True),)


class ContractDropdown:
    """Its choices are the files of the input folder."""

    @classmethod
    def INPUT_TYPES(cls):
        folder = folder_paths.get_input_directory()
        files = sorted(name for name in os.listdir(folder) if name.startswith("contract"))
        return {"required": {"file": (files or ["none"], {})}}

    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    CATEGORY = "contract/imports"

    def run(self, file):
        return (file,)


class ContractLogs(_Text):
    def run(self, seed):
        logging.info("contract: info %d", seed)
        logging.warning("contract: warning %d", seed)
        logging.debug("contract: debug %d", seed)
        print(f"contract: printed {seed}")
        sys.stdout.write(f"contract: written {seed}\n")
        print(f"contract: half ", end="")
        print(f"a line {seed}")
        return ("logged",)


class ContractVariables(_Text):
    def run(self, seed):
        return (json.dumps({"path": bool(os.environ.get("PATH")), "home": os.environ.get("HOME")}, sort_keys=True),)


NODES = {
    kind.__name__: kind
    for kind in (ContractImports, ContractFolders, ContractDropdown, ContractLogs, ContractVariables)
}
