"""Bytes on the card that no manager knows of, as packs take that keep plain torch modules on their nodes."""

from __future__ import annotations

import comfy.model_management

from . import models


class MemoryHold:
    """Takes bytes of the card and keeps them with the node object; 0 gives them back."""

    CATEGORY = "memory"
    FUNCTION = "hold"
    RETURN_TYPES = ("MEMORY_REPORT",)
    OUTPUT_NODE = True

    def __init__(self):
        self._held = 0

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"size_mib": ("INT", {"default": 64})}}

    def hold(self, size_mib):
        card = comfy.model_management._cards[0]
        card.give_back(self._held)
        self._held = 0
        card.take(size_mib * models.MIB)
        self._held = size_mib * models.MIB
        return (models.report(),)


class MemoryReport:
    """Says what the process holds."""

    CATEGORY = "memory"
    FUNCTION = "report"
    RETURN_TYPES = ("MEMORY_REPORT",)
    OUTPUT_NODE = True

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {}}

    @classmethod
    def IS_CHANGED(cls):
        return float("nan")

    def report(self):
        return (models.report(),)
