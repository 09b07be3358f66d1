"""Whatever the adapter's sources look up in ComfyUI is in the loan book."""

from __future__ import annotations

import os
import unittest
from pathlib import Path

import comfyui_adapter
from comfyui_adapter import loanbook
from fakecomfy import modules
from lookups import looked_up

# Modules that are not ComfyUI's: the host has them for reasons of its own, or they are Python's.
OTHERS = frozenset(("torch", "comfyui_manager", "aiohttp", "multidict", "__main__", "comfy_supervisor", "psutil"))


class Book(unittest.TestCase):
    def test_whatever_is_looked_up_is_listed(self) -> None:
        folder = Path(os.path.dirname(comfyui_adapter.__file__))
        listed = {(loan.module, loan.name) for loan in loanbook.LOANS}
        known = {module for module, _ in listed}
        seen = set()
        for file in sorted(folder.glob("*.py")):
            for module, name in looked_up(file.read_text(encoding="utf-8")):
                if module in OTHERS:
                    continue
                seen.add(module)
                self.assertIn(module, known | {"server"}, f"{file.name} looks at {module}")
                if name and module != "server" and name != "__file__":
                    self.assertTrue(
                        any(module == book and (name == entry or entry.startswith(name + ".")) for book, entry in listed),
                        f"{file.name} looks at {module}.{name}",
                    )
        self.assertGreater(len(seen), 8)

    def test_what_is_missing_is_said_with_what_follows(self) -> None:
        with modules(comfy__utils={}, comfy_execution__utils={"get_executing_context": None}):
            lines = loanbook.missing()
        self.assertEqual(lines, ["this ComfyUI has no comfy.utils.PROGRESS_BAR_HOOK: bars of isolated nodes are not shown"])


if __name__ == "__main__":
    unittest.main()
