"""Whatever the adapter's sources look up in ComfyUI is in the loan book."""

from __future__ import annotations

import ast
import os
import unittest
from pathlib import Path

import comfyui_adapter
from comfyui_adapter import loanbook
from fakecomfy import modules

# Modules that are not ComfyUI's: the host has them for reasons of its own, or they are Python's.
OTHERS = frozenset(("torch", "comfyui_manager", "aiohttp", "multidict", "__main__", "comfy_supervisor", "psutil"))


def looked_up(source: str) -> set[tuple[str, str]]:
    """(module, name) of every look-up by a constant; the name is "" where only the module is looked up."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        constants = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        if called == "_attribute" and len(constants) >= 2:
            found.add((constants[0], constants[1]))
        elif called in ("sys.modules.get", "importlib.import_module", "hooks.watch") and constants:
            if isinstance(constants[0], str):
                found.add((constants[0], ""))
        elif called == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            inner = node.args[0]
            if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "sys.modules.get":
                module = inner.args[0]
                if isinstance(module, ast.Constant):
                    found.add((module.value, str(node.args[1].value)))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "sys.modules" and isinstance(node.slice, ast.Constant):
            found.add((node.slice.value, ""))
        if isinstance(node, ast.Import):
            found.update((name.name, "") for name in node.names if name.name == "folder_paths")
    return found


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
