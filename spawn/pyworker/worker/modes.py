"""torch's gradient mode on the main thread: node calls run as ComfyUI's executor runs them.

The executor wraps a whole prompt in torch.inference_mode(). Here the mode is entered at the first
call for which torch is there, or in mid-call when a node imports torch, and stays on: it belongs to
the thread.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

CHOICES = ("inference_mode", "no_grad", "off")


class Modes:
    """The main thread's mode. torch is never imported here."""

    def __init__(self) -> None:
        self.choice = CHOICES[0]
        self.in_call = False  # a call runs on the main thread
        self._guard: Any = None  # leaving the mode would need it, so it is kept

    def enter(self) -> None:
        """To be called on the main thread before a node's code."""
        torch = sys.modules.get("torch")
        if torch is None or self.choice == "off":
            return
        try:
            if self.choice == "no_grad":
                if torch.is_grad_enabled():
                    torch.set_grad_enabled(False)
            elif not torch.is_inference_mode_enabled():
                guard = torch.inference_mode()
                guard.__enter__()
                self._guard = guard
        except AttributeError:
            pass  # torch is being imported right now; the hook calls again when it is whole

    def torch_arrived(self, torch: Any) -> None:
        """The post-import hook of torch."""
        if self.in_call and threading.current_thread() is threading.main_thread():
            self.enter()
