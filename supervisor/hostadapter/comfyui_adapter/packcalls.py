"""The five calls of a pack, and nothing else: each finds out who called and hands over.

A pack's mistakes are raised to ComfyUI, which names the pack and goes on; nothing here ends ComfyUI's start.
"""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

from . import copying, discovery, serializers, settings
from .environments import Unusable


def _caller(depth: int = 2) -> Path:
    """The folder of the file that called, in the caller's own spelling: it may lead through a link."""
    file = sys._getframe(depth).f_globals.get("__file__")
    return Path(os.path.abspath(file)).parent if file else Path.cwd()


def register_nodes(nodes_package: str = "nodes") -> tuple[dict[str, type], dict[str, str]]:
    """NODE_CLASS_MAPPINGS and NODE_DISPLAY_NAME_MAPPINGS of the pack that calls.

    Folders with a comfy-env.toml run in workers, the others are imported here. Raises what makes the pack unusable.
    """
    pack = _caller()
    package = str(sys._getframe(1).f_globals.get("__name__"))
    classes: dict[str, type] = {}
    names: dict[str, str] = {}
    failures: list[BaseException] = []
    if not (pack / nodes_package).is_dir():
        logging.warning("[%s] there is no folder %s", pack.name, pack / nodes_package)
        return classes, names
    serializers.load(pack)
    isolated = discovery.isolated_sources(pack, nodes_package)
    whole = any(source.directory == pack / nodes_package for source in isolated)
    for source in isolated:
        try:
            more, texts = _isolated(pack, source, package)
        except Unusable as error:
            logging.error("[%s] %s", pack.name, error)
            continue
        except Exception as error:
            logging.error("[%s] %s: %s", pack.name, source.module, error)
            failures.append(error)
            continue
        classes.update(more)
        names.update(texts)
    if not whole:
        for module in _plain_modules(pack, nodes_package, bool(isolated)):
            try:
                more, texts = _imported(package, module)
            except Exception as error:
                logging.error("[%s] importing %s failed", pack.name, module, exc_info=True)
                failures.append(error)
                continue
            classes.update(more)
            names.update(texts)
    if failures and not classes:
        raise failures[0]
    return classes, names


def _isolated(pack: Path, source: discovery.Source, package: str) -> tuple[dict[str, type], dict[str, str]]:
    from .adapter import adapter

    try:
        return adapter().register(pack, source)
    except Exception as error:
        if not settings.falls_back_to_host(source.manifest):
            raise
        logging.warning("[%s] %s; it runs inside ComfyUI instead, as the setting fallback asks for", pack.name, error)
        return _imported(package, source.module)


def _plain_modules(pack: Path, nodes_package: str, some_isolated: bool) -> list[str]:
    """What the host imports: the nodes package itself, or its subfolders where that has nothing."""
    subfolders = [source.module for source in discovery.plain_subfolders(pack, nodes_package)]
    if (pack / nodes_package / "__init__.py").is_file() and not some_isolated:
        return [nodes_package]
    return subfolders


def _imported(package: str, module: str) -> tuple[dict[str, type], dict[str, str]]:
    """The mappings of a module below the pack, imported as the pack itself would."""
    imported = importlib.import_module(f".{module}", package=package)
    classes = getattr(imported, "NODE_CLASS_MAPPINGS", None) or {}
    names = getattr(imported, "NODE_DISPLAY_NAME_MAPPINGS", None) or {}
    return dict(classes), dict(names)


def install(
    config: str | os.PathLike[str] | None = None,
    node_dir: str | os.PathLike[str] | None = None,
    log_callback: Callable[[str], None] | None = None,
    dry_run: bool = False,
) -> bool:
    """Builds the environments of the pack that calls, or of `node_dir`. True when they are built.

    `config` names a manifest and is accepted for packs that pass one: all of the pack's manifests are built. Each line
    goes to `log_callback`, by default to standard output. Raises RuntimeError when building fails.
    """
    pack = Path(node_dir) if node_dir is not None else _caller()
    log = log_callback or print
    binary = os.environ.get("COMFY_SUPERVISOR_BINARY")
    if not binary:
        raise RuntimeError(
            f"installing {pack.name}: COMFY_SUPERVISOR_BINARY is not set; start ComfyUI with `comfy-supervisor run`, or"
            ' run `eval "$(comfy-supervisor env)"` first'
        )
    words = [binary, "build", str(pack), "--python", sys.executable]
    if dry_run:
        words.append("--dry-run")
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    assert process.stdout is not None
    last = ""
    with process.stdout:
        for line in process.stdout:
            last = line.rstrip("\n") or last
            log(line.rstrip("\n"))
    code = process.wait()
    if code != 0:
        raise RuntimeError(f"building the environments of {pack.name} failed with exit code {code}: {last}")
    return True


def setup_env(node_dir: str | os.PathLike[str] | None = None) -> None:
    """Nothing to prepare before ComfyUI's start: workers get their environment from the supervisor."""


def copy_files(src: Any, dst: Any, pattern: str = "*", overwrite: bool = False) -> int:
    """Copies a pack's files; see copying.copy_into."""
    return copying.copy_into(src, dst, pattern, overwrite, _caller())


def register_serializer(
    type_name: str,
    serialize: Callable[[Any, Callable[[Any], Any]], Any],
    deserialize: Callable[[Any, Callable[[Any], Any]], Any] | None = None,
    tag: str | None = None,
) -> None:
    """Registers how objects of a class (by its name, or that of a base) cross between ComfyUI and workers."""
    serializers.register(type_name, serialize, deserialize, tag)
