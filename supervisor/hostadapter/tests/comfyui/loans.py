"""Holds a loan book against a real ComfyUI.

    python loans.py COMFYUI MODULE PATH...

MODULE is the loan book, importable from PATH. Imports everything that the book names, as far as it goes without a GPU,
and prints one line for each name or parameter that is not there.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys

COMFYUI, BOOK, *PATHS = sys.argv[1:]
sys.argv = ["main.py", "--cpu"]
sys.path[:0] = [COMFYUI, *PATHS]
os.chdir(COMFYUI)

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()


def main() -> None:
    book = importlib.import_module(BOOK)
    resolve = importlib.import_module(BOOK.rpartition(".")[0] + ".loans").resolve
    for loan in book.LOANS:
        try:
            importlib.import_module(loan.module)
        except ImportError as error:
            print(f"{loan.module}: {error}")
    for loan in book.LOANS:
        try:
            found = resolve(loan)
        except LookupError as error:
            print(f"missing: {error}")
            continue
        if loan.parameters is not None:
            known = inspect.signature(found).parameters
            lacking = [name for name in loan.parameters if name not in known]
            if lacking:
                print(f"{loan.module}.{loan.name} has no parameters {lacking}: {list(known)}")
    if getattr(book, "SERVER_ATTRIBUTES", None):
        import asyncio

        import server

        made = server.PromptServer(asyncio.new_event_loop())
        for name in book.SERVER_ATTRIBUTES:
            if not hasattr(made, name):
                print(f"the server has no {name}")
    print(f"{len(book.LOANS)} loans checked")


if __name__ == "__main__":
    main()
