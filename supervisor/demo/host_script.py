"""A host in Python: calls the node whose file is missing, and says what its caller's `except` saw."""

import json
import sys
import traceback

import comfy_supervisor

comfyui, environment, path = sys.argv[1:]
session = comfy_supervisor.connect(start=False, comfyui=comfyui, name="comfy-supervisor demo, in Python")
seen = {"caught": False}
try:
    session.call(environment, "DemoReadFile", path=path)
except FileNotFoundError as error:
    seen = {
        "caught": True,
        "class": f"{type(error).__module__}.{type(error).__qualname__}",
        "filename": str(error.filename),
        "errno": error.errno,
        "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
    }
except Exception as error:
    seen["class"] = f"{type(error).__module__}.{type(error).__qualname__}"
    seen["message"] = str(error)
finally:
    workers = [worker["id"] for worker in session.stop()]
print(json.dumps({**seen, "workers": workers}))
