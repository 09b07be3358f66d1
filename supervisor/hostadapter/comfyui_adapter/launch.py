"""Runs ComfyUI's main.py with the adapter importable, for interpreters that ignore PYTHONPATH.

`comfy-supervisor run` starts it, with the script in COMFY_SUPERVISOR_MAIN. ComfyUI-Manager restarts ComfyUI by an exec
of sys.argv, so sys.argv[0] stays this file and the rest are ComfyUI's arguments.
"""

import os
import sys


def main() -> None:
    """Runs the script as the interpreter would have run it."""
    script = os.environ.get("COMFY_SUPERVISOR_MAIN")
    if not script:
        raise SystemExit("launch.py is started by `comfy-supervisor run`, which names the script to run")
    here = os.path.dirname(os.path.abspath(__file__))
    adapter = os.path.dirname(here)
    if sys.path and os.path.abspath(sys.path[0]) == here:
        sys.path[0] = os.path.dirname(script)
        sys.path.insert(1, adapter)
    else:  # a mode in which a script's own folder is not on the path
        sys.path.insert(0, adapter)
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    # In the real __main__, and not through runpy, which would put the script's name into sys.argv[0].
    namespace = sys.modules["__main__"].__dict__
    namespace.update(__file__=script, __cached__=None, __doc__=None)
    exec(code, namespace)


if __name__ == "__main__":
    main()
