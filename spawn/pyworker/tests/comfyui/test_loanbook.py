"""Whatever the worker's sources look up in ComfyUI is in the loan book."""

from __future__ import annotations

import ast
import os
import unittest
from pathlib import Path

import comfy_supervisor_worker
from comfy_supervisor_worker.comfyui import loanbook

from lookups import looked_up

# Modules that are not ComfyUI's or its pager's.
OTHERS = frozenset(("torch", "numpy", "aiohttp", "asyncio", "asyncio.events", "enum", "inspect", "PIL", "psutil"))

MANAGEMENT = "comfy.model_management"  # which some of our modules are handed as an object


def asked_of_management(source: str) -> set[str]:
    """The attributes that are read or set of an object called `management` or `_management`."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        owner = node.value if isinstance(node, ast.Attribute) else None
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr") and len(node.args) > 1:
            owner = node.args[0]
        if owner is None or ast.unparse(owner).rpartition(".")[2] not in ("management", "_management"):
            continue
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node.args[1], ast.Constant):
            found.add(str(node.args[1].value))
    return found


class Book(unittest.TestCase):
    def test_whatever_is_looked_up_is_listed(self) -> None:
        folder = Path(os.path.dirname(comfy_supervisor_worker.__file__))
        listed = {(loan.module, loan.name) for loan in loanbook.LOANS}
        known = {module for module, _ in listed}
        seen = set()
        for file in sorted(folder.rglob("*.py")):
            for module, name in looked_up(file.read_text(encoding="utf-8")):
                if module in OTHERS:
                    continue
                seen.add(module)
                self.assertIn(module, known, f"{file.name} looks at {module}")
                if name:
                    self.assertTrue(
                        any(module == book and (name == entry or entry.startswith(name + ".")) for book, entry in listed),
                        f"{file.name} looks at {module}.{name}",
                    )
        self.assertGreater(len(seen), 8)

    def test_whatever_is_asked_of_memory_management_is_listed(self) -> None:
        folder = Path(os.path.dirname(comfy_supervisor_worker.__file__), "comfyui")
        listed = {loan.name for loan in loanbook.LOANS if loan.module == MANAGEMENT}
        asked = set()
        for file in sorted(folder.glob("*.py")):
            names = asked_of_management(file.read_text(encoding="utf-8"))
            self.assertEqual(names - listed, set(), f"{file.name} asks for what is not listed")
            asked |= names
        self.assertGreater(len(asked), 20)

    def test_what_is_missing_is_reported_with_what_follows(self) -> None:
        import sys
        import types

        sys.modules["comfy.utils"] = types.ModuleType("comfy.utils")
        self.addCleanup(sys.modules.pop, "comfy.utils")
        self.assertEqual(
            loanbook.missing(),
            [{"name": "comfy.utils.set_progress_bar_global_hook", "without": "progress bars are not shown"}],
        )


if __name__ == "__main__":
    unittest.main()
