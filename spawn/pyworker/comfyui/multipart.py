"""multipart/form-data bodies, for packs whose environment has no aiohttp to parse them."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field

_PARAMETER = re.compile(r';\s*([\w*-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;]*)')


@dataclass
class Part:
    """One field of a form."""

    name: str
    filename: str | None
    content_type: str
    data: bytes
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def file(self) -> io.BytesIO:
        """The content as a file, from its beginning."""
        return io.BytesIO(self.data)

    async def read(self, decode: bool = False) -> bytes:
        """The content."""
        return self.data

    async def text(self, encoding: str = "utf-8") -> str:
        """The content as text."""
        return self.data.decode(encoding)


def parameters(header: str) -> tuple[str, dict[str, str]]:
    """A header's value and its parameters, such as charset and boundary."""
    value, separator, rest = header.partition(";")
    found = {}
    for name, text in _PARAMETER.findall(separator + rest):
        text = text.strip()
        if text.startswith('"') and text.endswith('"') and len(text) >= 2:
            text = re.sub(r"\\(.)", r"\1", text[1:-1])
        found[name.lower()] = text
    return value.strip().lower(), found


def parse(body: bytes, content_type: str) -> list[Part]:
    """The parts of a body. Raises ValueError for what is no multipart body."""
    kind, options = parameters(content_type)
    boundary = options.get("boundary")
    if not kind.startswith("multipart/") or not boundary:
        raise ValueError(f"not a multipart body: Content-Type is {content_type!r}")
    marker = b"\r\n--" + boundary.encode("latin-1")
    pieces = (b"\r\n" + body).split(marker)
    parts = []
    for piece in pieces[1:]:
        if piece.startswith(b"--"):
            break
        head, separator, data = piece.partition(b"\r\n\r\n")
        if not separator:
            raise ValueError("a part of a multipart body has no end of its headers")
        parts.append(_part(head, data))
    return parts


def _part(head: bytes, data: bytes) -> Part:
    headers = {}
    for line in head.decode("utf-8", "surrogateescape").split("\r\n"):
        name, separator, value = line.partition(":")
        if separator:
            headers[name.strip().title()] = value.strip()
    _, options = parameters(headers.get("Content-Disposition", ""))
    return Part(
        name=options.get("name", ""),
        filename=options.get("filename"),
        content_type=headers.get("Content-Type", "text/plain"),
        data=data,
        headers=headers,
    )
