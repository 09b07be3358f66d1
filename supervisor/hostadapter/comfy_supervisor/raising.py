"""Raising a worker's exception here: as its own class where that is loaded, with the worker's
traceback.

Classes come from sys.modules alone and are never imported: a name that a worker sent must not run
code here.
"""

from __future__ import annotations

import builtins
import sys
from types import CodeType, TracebackType
from typing import Any

_derived: dict[tuple[str, str, type], type[BaseException]] = {}
_MOST_DERIVED = 1000  # classes kept; a pack that makes new ones without end does not fill the host


def rebuild(
    described: dict[str, Any], arguments: tuple[Any, ...] | None, where: str
) -> BaseException:
    """The exception that `described` (Go's wire.Exception) tells of; `where` names the worker for
    the note.
    """
    module, qualname = str(described.get("module") or ""), str(
        described.get("qualname") or "Exception"
    )
    message = str(described.get("message") or "")
    kind = _loaded(module, qualname)
    if kind is None:
        kind = _derive(module, qualname, described.get("bases"))
    error = _construct(kind, arguments, message)
    _annotate(error, described, where)
    frames = described.get("frames")
    if isinstance(frames, list):
        error.__traceback__ = _traceback(frames)
    return error


def _loaded(module: str, qualname: str) -> type[BaseException] | None:
    """An exception class that is loaded here under a name, or None. Runs nobody's __getattr__."""
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        try:
            found = vars(found).get(part)
        except TypeError:
            return None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _derive(module: str, qualname: str, bases: Any) -> type[BaseException]:
    """A class of that name, below the nearest base that is loaded here."""
    candidates: list[type[BaseException]] = []
    for base in bases if isinstance(bases, list) else ():
        if isinstance(base, dict):
            found = _loaded(str(base.get("module")), str(base.get("qualname")))
            if found is not None:
                candidates.append(found)
    candidates.append(Exception)
    for base in candidates:
        key = (module, qualname, base)
        known = _derived.get(key)
        if known is not None:
            return known
        namespace = {
            "__module__": module,
            "__qualname__": qualname,
            "__str__": _message,
            "__doc__": None,
        }
        try:
            make: Any = type(base)  # a class's class makes it
            derived = make(qualname.rpartition(".")[2], (base,), namespace)
        except Exception:  # a base that can not be derived from, or does more when it is
            continue
        if len(_derived) < _MOST_DERIVED:
            _derived[key] = derived
        return derived
    return Exception


def _message(error: BaseException) -> str:
    """The text of a derived class: what the worker's exception said."""
    return getattr(error, "_comfy_supervisor_message", "")


def _construct(
    kind: type[BaseException], arguments: tuple[Any, ...] | None, message: str
) -> BaseException:
    error: BaseException | None = None
    if arguments is not None:
        try:
            error = kind(*arguments)
            if kind.__str__ is not _message and str(error) != message:
                error = None  # its __init__ made the text from other arguments
        except Exception:
            error = None
    if error is None:
        given = (message,) if arguments is None else arguments
        try:
            error = kind.__new__(kind, *given)
            error.args = given
        except Exception:
            error = Exception(message)
    try:
        error._comfy_supervisor_message = message  # type: ignore[attr-defined]
    except Exception:
        pass  # a class with slots; its text is its own
    return error


def _annotate(error: BaseException, described: dict[str, Any], where: str) -> None:
    text = str(described.get("traceback") or "")
    note = f"(raised in {where})"
    if text.count("Traceback (most recent call last)") > 1:
        note += f"\nThe whole traceback there:\n{text}"  # with the exceptions that led to it
    try:
        if hasattr(error, "add_note"):
            error.add_note(note)
        else:  # before Python 3.11, only a cause is printed
            error.__cause__ = WorkerTraceback(note)
        error.worker_traceback = text  # type: ignore[attr-defined]
        if described.get("error_code"):
            code = described["error_code"]
            number = int(code) if code.lstrip("-").isdigit() else code
            error.error_code = number  # type: ignore[attr-defined]
    except Exception:
        pass  # a class that allows no attributes


def _traceback(frames: list[Any]) -> TracebackType | None:
    """A traceback that shows the worker's frames, the outermost first."""
    result: TracebackType | None = None
    for frame in reversed(frames):
        try:
            file, line, function = str(frame["file"]), int(frame["line"]), str(frame["function"])
            inner = _frame(file, max(line, 1), function)
            result = TracebackType(result, inner.tb_frame, inner.tb_lasti, max(line, 1))
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
    return result


_STUB = compile("raise error", "stub", "exec")


def _frame(file: str, line: int, function: str) -> TracebackType:
    """A traceback of one frame that says it is at that place."""
    changes: dict[str, Any] = {"co_filename": file, "co_name": function, "co_firstlineno": line}
    if sys.version_info >= (3, 11):
        changes["co_qualname"] = function
    code: CodeType = _STUB.replace(**changes)
    try:
        exec(
            code,
            {"error": _Stub(), "__name__": function, "__file__": file, "__builtins__": builtins},
        )
    except _Stub as error:
        traceback = error.__traceback__
        assert traceback is not None and traceback.tb_next is not None
        return traceback.tb_next
    raise AssertionError("the stub raises")


class WorkerTraceback(Exception):
    """Carries a worker's traceback as text, where an exception can not have notes."""


class _Stub(Exception):
    """Raised only to get a frame."""
