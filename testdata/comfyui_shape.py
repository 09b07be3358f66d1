"""Print the names that a ComfyUI tree defines, one a line, with their signatures.

    comfyui_shape.py TREE            the whole tree
    comfyui_shape.py TREE FILE...    only these files of it, relative to the tree

Reads the sources, imports nothing. Annotations are left out: they change no call.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path


def signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """A function's parameters with their defaults."""
    arguments = function.args
    every = arguments.posonlyargs + arguments.args + arguments.kwonlyargs
    for argument in [*every, arguments.vararg, arguments.kwarg]:
        if argument is not None:
            argument.annotation = None
    marks = [ast.unparse(decorator) for decorator in function.decorator_list]
    if isinstance(function, ast.AsyncFunctionDef):
        marks.append("async")
    return f"({ast.unparse(arguments)})" + "".join(f" {mark}" for mark in sorted(marks))


def bases(definition: ast.ClassDef) -> str:
    """A class's bases by their last name, so that Enum and enum.Enum are one."""
    return ",".join(ast.unparse(base).rpartition(".")[2] for base in definition.bases)


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a block and of the conditions, attempts and loops in it."""
    for statement in body:
        yield statement
        for inner in ("body", "orelse", "finalbody"):
            if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from statements(getattr(statement, inner, []))


def targets(statement: ast.stmt) -> Iterator[ast.expr]:
    """What a statement assigns to."""
    if isinstance(statement, ast.Assign):
        yield from statement.targets
    elif isinstance(statement, ast.AnnAssign):
        yield statement.target


def is_public(name: str) -> bool:
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__"))


def names(module: str, body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """The lines of a module's or a class's block."""
    for statement in statements(body):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if is_public(statement.name):
                yield f"{module}:{prefix}{statement.name}{signature(statement)}"
            if prefix and statement.name == "__init__":
                yield from attributes(module, statement, prefix)
        elif isinstance(statement, ast.ClassDef) and is_public(statement.name):
            yield f"{module}:{prefix}{statement.name} class {bases(statement)}".rstrip()
            yield from names(module, statement.body, f"{prefix}{statement.name}.")
        else:
            for target in targets(statement):
                if isinstance(target, ast.Name) and is_public(target.id):
                    yield f"{module}:{prefix}{target.id} value"


def attributes(module: str, initialiser: ast.FunctionDef, prefix: str) -> Iterator[str]:
    """The attributes that a class's initialiser sets."""
    for statement in statements(initialiser.body):
        for target in targets(statement):
            if isinstance(target, ast.Attribute) and is_public(target.attr):
                yield f"{module}:{prefix}{target.attr} value"


def main() -> None:
    tree, chosen = Path(sys.argv[1]), sys.argv[2:]
    files = [tree / name for name in chosen] or sorted(tree.rglob("*.py"))
    lines = set()
    for file in files:
        module = ".".join(file.relative_to(tree).with_suffix("").parts)
        lines.update(names(module, ast.parse(file.read_text(encoding="utf-8")).body))
    for line in sorted(lines):
        print(line)


if __name__ == "__main__":
    main()
