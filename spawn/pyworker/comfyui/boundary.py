"""What ComfyUI's executor does around each node and each prompt, and a worker has to do by itself.

Under the pager, cast buffers, prefetched weights and watermarks are reset after every node, as the executor does. Under the
ledger nothing resets them natively, and they would stay as large as the largest weight for the worker's life: they go at the
first call of the next prompt. Models that a prompt uses are marked, so that pins of others go first.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from .ladder import forget_prefetched, outside_inference_mode, reset_watermarks


def _attribute(module: str, name: str, default: Any = None) -> Any:
    return getattr(sys.modules.get(module), name, default)


class Boundary:
    """Around calls and prompts, on the main thread. Nothing of it ever fails a call."""

    def __init__(self, management: Any) -> None:
        self._management = management
        self._prompt: Any = None
        self._tracker: Any = None
        self._warned = False

    @staticmethod
    def paged() -> bool:
        """Whether the pager moves models here."""
        return bool(_attribute("comfy.memory_management", "aimdo_enabled", False))

    def call_begins(self, prompt: Any, inputs: Any) -> None:
        """Before a node's code."""
        if prompt is not None and prompt != self._prompt:
            self._guarded(self._begin_prompt, prompt)
        if self._tracker is not None:
            self._guarded(self._tracker.add, inputs)

    def call_ended(self, result: Any) -> None:
        """After it, whatever came of it."""
        if not self.paged():
            return
        if self._tracker is not None and result is not None:
            self._guarded(self._mark, result)
        self._guarded(self._reset)

    def prompt_ended(self, prompt: Any) -> None:
        """A prompt is over; with smart memory off, ComfyUI forgets every model then."""
        if prompt is not None and prompt != self._prompt:
            return  # the next one has begun
        self._prompt = None
        if self._tracker is not None:
            self._guarded(self._tracker.end)
            self._tracker = None
        if getattr(self._management, "DISABLE_SMART_MEMORY", False):
            with outside_inference_mode():
                self._guarded(self._management.unload_all_models)

    def _begin_prompt(self, prompt: Any) -> None:
        self._prompt = prompt
        if self._tracker is not None:
            self._tracker.end()
            self._tracker = None
        if self.paged():
            kind = _attribute("comfy.model_patcher", "PromptModelTracker")
            if kind is not None:
                self._tracker = kind()
                self._tracker.start()
        elif self._has_buffers():
            self._reset()

    def _has_buffers(self) -> bool:
        names = ("STREAM_CAST_BUFFERS", "STREAM_AIMDO_CAST_BUFFERS", "DIRTY_MMAPS")
        return any(getattr(self._management, name, None) for name in names)

    def _reset(self) -> None:
        self._management.reset_cast_buffers()
        forget_prefetched()
        reset_watermarks()

    def _mark(self, result: Any) -> None:
        value = result.get("value") if isinstance(result, dict) and "value" in result else result
        self._tracker.add(value)
        arguments = getattr(value, "args", None)  # of a NodeOutput
        if isinstance(arguments, tuple):
            self._tracker.add(arguments)

    def _guarded(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception:
            level = logging.DEBUG if self._warned else logging.WARNING
            self._warned = True
            logging.log(level, "what ComfyUI does around a node failed; the node is not affected", exc_info=True)
