"""Packs' own codecs in the host: kept from before there is a connection, and read from serialization.py."""

from __future__ import annotations

import importlib.util
import logging
import re
import sys
from pathlib import Path
from typing import Any, Callable

from comfy_supervisor.wire.codecs import Codecs

ROOT_FILE = "comfy-env-root.toml"
FILE = "serialization.py"
_CUSTOM = re.compile(r"""^\s*["']?([\w.*,-]+)["']?\s*=\s*["']custom["']""", re.MULTILINE)

codecs = Codecs()  # shared by every connection of this process
_loaded: set[Path] = set()


def register(
    type_name: str,
    serialize: Callable[[Any, Callable[[Any], Any]], Any],
    deserialize: Callable[[Any, Callable[[Any], Any]], Any] | None,
    tag: str | None,
) -> None:
    """Registers a codec."""
    codecs.register_pack(type_name, serialize, deserialize, tag)


def load(pack: Path) -> None:
    """Runs a pack's serialization.py, once. What is wrong with it is said in one line; the pack is loaded all the
    same, for only the nodes that use its types need it."""
    file = pack / FILE
    if file in _loaded:
        return
    _loaded.add(file)
    declared = custom_types(pack)
    if not file.is_file():
        if declared:
            logging.error("[%s] %s declares %s as custom, but there is no %s", pack.name, ROOT_FILE, ", ".join(declared), file)
        return
    before = codecs.registrations
    try:
        name = f"comfy_supervisor_serializers_{len(_loaded)}"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    except Exception as error:
        logging.error("[%s] %s could not be read: %s: %s", pack.name, file, type(error).__name__, error)
        return
    if codecs.registrations == before and declared:
        logging.error("[%s] %s registers no serializer, but %s declares %s", pack.name, file, ROOT_FILE, ", ".join(declared))


def custom_types(pack: Path) -> list[str]:
    """The socket types that a pack's root file declares as custom; read as text, for Python 3.10 has no TOML."""
    try:
        text = (pack / ROOT_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    section = re.search(r"^\s*\[types\]\s*$(.*?)(?=^\s*\[|\Z)", text, re.MULTILINE | re.DOTALL)
    return _CUSTOM.findall(section.group(1)) if section else []
