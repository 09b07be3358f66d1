"""A ComfyUI host on a fake card: the miniature tree, as main.py starts the real one."""

from __future__ import annotations

from types import ModuleType


def start(*, paged: bool) -> ModuleType:
    """Starts ComfyUI with the pager or the ledger; its comfy.model_management. The tree is on the path, with its comfy."""
    control = None
    if paged:
        import comfy_aimdo.control as control

        control.init()
    import comfy.memory_management
    import comfy.model_management
    import comfy.model_patcher

    if control is not None:
        assert control.init_devices([(0, 0)])
        comfy.model_patcher.CoreModelPatcher = comfy.model_patcher.ModelPatcherDynamic
        comfy.memory_management.aimdo_enabled = True
    return comfy.model_management
