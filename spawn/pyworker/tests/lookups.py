"""What a source file looks up in other projects' modules."""

from __future__ import annotations

import ast

WATCHES = ("sys.modules.get", "importlib.import_module", "hooks.watch", "self.hooks.watch")


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
        elif called in WATCHES and constants:
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
