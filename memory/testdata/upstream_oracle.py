"""Runs the arithmetic of a real ComfyUI on cases from standard input.

Usage: python upstream_oracle.py COMFYUI_DIRECTORY < cases.json > results.json

The functions are taken out of comfy/model_management.py as it lies on disk and run unchanged, with small stand-ins for
torch, psutil and the models. Nothing of ComfyUI is copied here; standard library only.
"""

from __future__ import annotations

import ast
import json
import math
import sys
import types
from pathlib import Path
from typing import Any

WANTED_FUNCTIONS = {
    "LoadedModel",
    "ensure_pin_budget",
    "ensure_pin_registerable",
    "extra_reserved_memory",
    "free_memory",
    "free_registrations",
    "load_models_gpu",
    "minimum_inference_memory",
    "pinned_hostbuf_size",
    "should_free_pins_for_ram_pressure",
}
WANTED_NAMES = {
    "EXTRA_RESERVED_VRAM",
    "MAX_PINNED_MEMORY",
    "MIN_WEIGHT_MEMORY_RATIO",
    "PIN_PRESSURE_HYSTERESIS",
    "REGISTERABLE_PIN_HYSTERESIS",
}


class Model:
    """A model patcher that only has sizes."""

    def __init__(self, case: dict[str, Any], state: dict[str, Any]) -> None:
        self.case, self.state = case, state
        self.load_device, self.offload_device, self.parent = "card", "cpu", None
        self.model = self
        self.budget: float | None = None

    def model_size(self) -> int:
        return self.case["size"]

    def loaded_size(self) -> int:
        return self.case["loaded"]

    def loaded_ram_size(self) -> int:
        return 0

    def current_loaded_device(self) -> str:
        return "card" if self.case["loaded"] else "cpu"

    def is_dynamic(self) -> bool:
        return self.case["dynamic"]

    def is_clone(self, other: Model) -> bool:
        return False

    def model_patches_models(self) -> list[Model]:
        return []

    def model_patches_to(self, _target: Any) -> None:
        return None

    def model_dtype(self) -> str:
        return "fp16"

    def partially_load(self, _device: str, extra: float, force_patch_weights: bool = False) -> None:
        self.budget = extra

    def _gives(self, amount: int) -> None:
        self.case["loaded"] -= amount
        self.state["free"] += amount
        self.state["unloads"].append([self.case["index"], amount])

    def partially_unload(self, _device: str, amount: float) -> float:
        whole = min(self.case["loaded"], int(-(-amount // 1)))
        self._gives(whole)
        return whole

    def detach(self, _unpatch: bool = True) -> None:
        self._gives(self.case["loaded"])


def names(node: ast.AST) -> set[str]:
    return {
        target.id
        for statement in ast.walk(node)
        if isinstance(statement, (ast.Assign, ast.AugAssign))
        for target in (
            statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        )
        if isinstance(target, ast.Name)
    }


def extract(source: Path) -> tuple[ast.Module, ast.Module]:
    """The functions, and the top-level statements that set the names, in their order."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    functions = [
        node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in WANTED_FUNCTIONS
    ]
    missing = WANTED_FUNCTIONS - {node.name for node in functions}
    if missing - {"should_free_pins_for_ram_pressure"}:
        raise SystemExit(
            f"{source} has no {', '.join(sorted(missing))}: another ComfyUI than this script knows"
        )
    settings = [
        node
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.If)) and names(node) & WANTED_NAMES
    ]
    for module in (functions, settings):
        for node in module:
            ast.fix_missing_locations(node)
    return ast.Module(functions, []), ast.Module(settings, [])


def estimate(source: Path, case: dict[str, Any]) -> float:
    """BaseModel.memory_required for one input shape."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    [base] = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "BaseModel"]
    [function] = [
        n for n in base.body if isinstance(n, ast.FunctionDef) and n.name == "memory_required"
    ]
    management = types.SimpleNamespace(
        xformers_enabled=lambda: False,
        pytorch_attention_flash_attention=lambda: case.get("compact", False),
        dtype_size=lambda _dtype: case["element_size"],
    )
    space = {"comfy": types.SimpleNamespace(model_management=management), "math": math}
    exec(compile(ast.Module([function], []), "model_base.py", "exec"), space)  # noqa: S102
    model = types.SimpleNamespace(
        memory_usage_factor_conds=(),
        memory_usage_factor=case["factor"],
        get_dtype_inference=lambda: None,
    )
    return space["memory_required"](model, case["shape"])


def namespace(case: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """What model_management's functions find in their module."""
    arguments = types.SimpleNamespace(
        reserve_vram=case.get("reserve_vram"),
        disable_pinned_memory=not case.get("pinning", True),
        high_ram=case.get("high_ram", False),
        fast_disk=case.get("fast_disk", False),
    )
    cpu = types.SimpleNamespace(type="cpu")
    memory_management = types.SimpleNamespace(RAM_CACHE_HEADROOM=case.get("cache_headroom", 0))
    weak = types.SimpleNamespace(
        ref=lambda target: lambda: target,
        finalize=lambda *_: types.SimpleNamespace(detach=lambda: None, atexit=False),
    )
    ignore = lambda *_, **__: None  # noqa: E731
    return {
        "LoadedModel": None,
        "args": arguments,
        "comfy": types.SimpleNamespace(memory_management=memory_management),
        "cleanup_models": ignore,
        "cleanup_models_gc": ignore,
        "detail": ignore,
        "logging": types.SimpleNamespace(info=ignore, debug=ignore, warning=ignore),
        "psutil": types.SimpleNamespace(
            virtual_memory=lambda: types.SimpleNamespace(available=case.get("available", 0))
        ),
        "sys": types.SimpleNamespace(getrefcount=lambda model: model.case["references"]),
        "torch": types.SimpleNamespace(device=lambda name: cpu if name == "cpu" else name),
        "weakref": weak,
        "VRAMState": types.SimpleNamespace(
            HIGH_VRAM=4, NORMAL_VRAM=3, LOW_VRAM=2, NO_VRAM=1, DISABLED=0
        ),
        "vram_state": 4 if case.get("high_vram") else 3,
        "lowvram_available": True,
        "is_device_cpu": lambda device: device is cpu,
        "is_nvidia": lambda: case.get("nvidia", True),
        "is_amd": lambda: False,
        "get_total_memory": lambda _device: case.get("ram", 0),
        "total_vram": case.get("card", 0) / (1024 * 1024),
        "WINDOWS": case.get("windows", False),
        "DISABLE_SMART_MEMORY": case.get("disable_smart", False),
        "TOTAL_PINNED_MEMORY": case.get("pinned", 0),
        "current_loaded_models": state["models"],
        "get_free_memory": lambda _device, torch_free_too=False: (
            (state["free"], case.get("torch_idle", 0)) if torch_free_too else state["free"]
        ),
        "soft_empty_cache": lambda: state.__setitem__("emptied", True),
        "free_pins": lambda size, **_: state.setdefault("free_pins", size) and 0,
        "free_model_pins": lambda size, *_, **__: state.setdefault("registrations", size) and 0,
        "registration_eviction_tiers": lambda _active: [(None, None, None)],
    }


def run(
    functions: ast.Module, settings: ast.Module, source: Path, case: dict[str, Any]
) -> dict[str, Any]:
    state: dict[str, Any] = {
        "free": case.get("free", 0),
        "models": [],
        "unloads": [],
        "emptied": False,
    }
    space = namespace(case, state)
    exec(
        compile(functions, "model_management.py", "exec"), space
    )  # noqa: S102 - the operator's own ComfyUI
    exec(compile(settings, "model_management.py", "exec"), space)  # noqa: S102
    if "reserve" in case:
        space["EXTRA_RESERVED_VRAM"] = case["reserve"]
    if "ceiling" in case:
        space["MAX_PINNED_MEMORY"] = case["ceiling"]

    def loaded(description: dict[str, Any], index: int) -> Any:
        entry = space["LoadedModel"](Model({**description, "index": index}, state))
        entry.real_model = lambda: None
        entry.model_finalizer = types.SimpleNamespace(detach=lambda: None)
        entry.strong = entry.model
        return entry

    entries = [loaded(model, index) for index, model in enumerate(case.get("models", []))]
    state["models"].extend(entries)
    kept = [entry for entry in entries if entry.model.case["keep"]]
    result: dict[str, Any] = {
        "reserve": space["EXTRA_RESERVED_VRAM"],
        "minimum_inference": space["minimum_inference_memory"](),
        "ceiling": space["MAX_PINNED_MEMORY"],
        "host_buffer": space["pinned_hostbuf_size"](case.get("pin_size", 0)),
    }
    if case["kind"] == "free":
        space["free_memory"](case["required"], "card", kept, for_dynamic=case["for_dynamic"])
        result["unloads"], result["emptied"] = state["unloads"], state["emptied"]
    if case["kind"] == "load":
        asked: list[float] = []

        def free_memory(required: float, _device: str, **_: Any) -> list[Any]:
            asked.append(required)
            return []

        space["free_memory"] = free_memory
        model = Model({**case["model"], "index": -1}, state)
        space["load_models_gpu"](
            [model], case["activation"], minimum_memory_required=case["minimum"]
        )
        result["asked"], result["budget"] = asked, model.budget
    if case["kind"] == "estimate":
        result["estimate"] = estimate(source, case)
    if case["kind"] == "pins":
        space["ensure_pin_budget"](case["pin_size"])
        space["ensure_pin_registerable"](case["pin_size"])
        result["free_pins"] = state.get("free_pins")
        result["registrations"] = state.get("registrations")
    return result


def main() -> None:
    comfy = Path(sys.argv[1]) / "comfy"
    functions, settings = extract(comfy / "model_management.py")
    base = comfy / "model_base.py"
    json.dump([run(functions, settings, base, case) for case in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
