"""Describing an exception so that the other side can raise it again, or show it."""

from __future__ import annotations

from typing import Any, Callable

_MOST_FRAMES = 100  # a recursion to the limit has a thousand, all alike
_MOST_TEXT = 48 << 10  # characters of traceback text; a header has 256 KiB in all
_ESSENTIAL = ("builtins", "object")


def describe(error: BaseException, ours: Callable[[str], bool]) -> dict[str, Any]:
    """An exception as Go's wire.Exception, without the frames of files that are `ours`."""
    import traceback

    kind = type(error)
    frames = []
    entries: list[Any] = []
    try:
        entries = [
            entry for entry in traceback.extract_tb(error.__traceback__) if not ours(entry.filename)
        ]
        for entry in _middle_cut(entries):
            frame = {"file": entry.filename, "line": entry.lineno or 0, "function": entry.name}
            if entry.line:
                frame["text"] = entry.line[:500]
            frames.append(frame)
        text = _text(error, ours)
    except Exception as failure:  # a broken __str__, a source file that can not be decoded
        text = f"{kind.__qualname__} (its traceback can not be shown: {type(failure).__name__})\n"
    described: dict[str, Any] = {
        "module": str(getattr(kind, "__module__", "") or ""),
        "qualname": kind.__qualname__,
        "bases": [
            {"module": str(base.__module__), "qualname": base.__qualname__}
            for base in kind.__mro__[1:]
            if (base.__module__, base.__qualname__) != _ESSENTIAL
        ],
        "message": message_of(error)[:16384],
        "traceback": text,
        "frames": frames,
    }
    code = getattr(error, "error_code", None)
    if isinstance(code, (int, str)):
        described["error_code"] = str(code)
    return described


def message_of(error: BaseException) -> str:
    """str(error), whatever it does."""
    try:
        return str(error)
    except Exception as failure:
        return f"<an exception whose text raises {type(failure).__name__}>"


def _text(error: BaseException, ours: Callable[[str], bool]) -> str:
    import traceback

    formatted = traceback.TracebackException.from_exception(error, capture_locals=False)
    seen = set()
    chain: list[Any] = [formatted]
    while chain:
        part = chain.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        kept = traceback.StackSummary.from_list(
            [entry for entry in part.stack if not ours(entry.filename)]
        )
        part.stack = kept
        chain.extend((part.__cause__, part.__context__, *(getattr(part, "exceptions", None) or ())))
    text = "".join(formatted.format())
    if len(text) > _MOST_TEXT:
        half = _MOST_TEXT // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
    return text


def _middle_cut(entries: list[Any]) -> list[Any]:
    if len(entries) <= _MOST_FRAMES:
        return entries
    return [*entries[: _MOST_FRAMES // 2], *entries[-_MOST_FRAMES // 2 :]]
