"""What a node is told: the server's facts, the flags in force, and the modes in which its questions are asked."""

import json
import time

import comfy.model_management
import comfy.utils
import torch
from comfy.cli_args import args
from comfy_execution.utils import get_executing_context
from server import PromptServer

from .behaviour import ANY


class _Text:
    RETURN_TYPES = ("STRING",)
    FUNCTION = "run"
    CATEGORY = "contract/answers"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"seed": ("INT", {"default": 0})}}


class ContractAsked(_Text):
    """Whether its questions are asked in inference mode: those of the executor are, that of the server is not."""

    modes = {}

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"seed": ("INT", {"default": 0}), "lazy": (ANY, {"lazy": True})}}

    @classmethod
    def note(cls, question):
        cls.modes[question] = torch.is_inference_mode_enabled()

    @classmethod
    def IS_CHANGED(cls, seed, lazy):
        cls.note("IS_CHANGED")
        return seed

    @classmethod
    def VALIDATE_INPUTS(cls, seed):
        cls.note("VALIDATE_INPUTS")
        return True

    def check_lazy_status(self, seed, lazy=None):
        self.note("check_lazy_status")
        return ["lazy"] if lazy is None else []

    def run(self, seed, lazy=None):
        self.note("run")
        return (json.dumps(self.modes, sort_keys=True),)


class ContractServer(_Text):
    """The server as packs use it."""

    def run(self, seed):
        server, context = PromptServer.instance, get_executing_context()
        report = {
            "client": server.client_id,
            "node": server.last_node_id == context.node_id,
            "prompt": server.last_prompt_id == context.prompt_id,
            "port": isinstance(server.port, int),
            "waiting": server.prompt_queue.get_tasks_remaining(),
            "running": [entry[1] == context.prompt_id for entry in server.prompt_queue.get_current_queue()[0]],
            "history": context.prompt_id in server.prompt_queue.get_history(),
            "loop": hasattr(server.loop, "call_soon_threadsafe"),
            "app": hasattr(server.app, "router"),
            "replacements": hasattr(server.node_replace_manager, "register"),
        }
        return (json.dumps(report, sort_keys=True),)


class ContractFlags(_Text):
    """Flags that take effect inside of nodes, and the state of ComfyUI's memory management."""

    NAMES = (
        "default_hashing_function deterministic disable_metadata disable_mmap disable_smart_memory fast force_channels_last"
        " force_fp16 preview_method preview_size use_split_cross_attention"
    )

    def run(self, seed):
        report = {name: str(getattr(args, name)) for name in self.NAMES.split()}
        report["state"] = comfy.model_management.vram_state.name
        report["reserve"] = int(comfy.model_management.EXTRA_RESERVED_VRAM)
        return (json.dumps(report, sort_keys=True),)


class ContractBarEndless(_Text):
    """Reports progress until it is interrupted."""

    def run(self, seed):
        bar = comfy.utils.ProgressBar(1000)
        PromptServer.instance.send_sync("contract.begun", {}, PromptServer.instance.client_id)
        while True:
            bar.update_absolute(1000)  # which is reported each time, as the last step is
            time.sleep(0.005)


NODES = {kind.__name__: kind for kind in (ContractAsked, ContractServer, ContractFlags, ContractBarEndless)}
