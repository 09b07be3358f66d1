"""Making and mapping memory files: anonymous memory on Linux, files in a private folder elsewhere."""

from __future__ import annotations

import errno
import mmap
import os
import sys
from typing import Any

from .errors import CannotCross

PAGE = mmap.PAGESIZE
FileReference = dict[str, Any]  # Go's wire.File

_UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) and os.name == "posix" else {}
_folder: str | None = None


def create(name: str, size: int) -> tuple[int, str]:
    """A new file of `size` bytes whose memory is allocated, not promised: (descriptor, path or "").

    Raises CannotCross where there is no room.
    """
    descriptor, path = -1, ""
    try:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create(f"comfy-supervisor-{name}", os.MFD_CLOEXEC)
        else:
            path = os.path.join(_private_folder(), name)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o600)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)  # a full memory file system is an error here, not a SIGBUS later
        else:
            os.ftruncate(descriptor, size)
    except OSError as error:
        discard(descriptor, path)
        what = "memory" if not path else f"space in {os.path.dirname(path)}"
        if error.errno in (errno.ENOSPC, errno.ENOMEM):
            raise CannotCross(f"there is no {what} for a memory file of {size} bytes", "quota") from error
        raise CannotCross(f"making a memory file of {size} bytes: {error}", "quota") from error
    return descriptor, path


def discard(descriptor: int, path: str) -> None:
    """Closes and removes a file of `create`."""
    if descriptor >= 0:
        os.close(descriptor)
    if path:
        try:
            os.unlink(path)
        except OSError:
            pass  # still mapped (Windows): the folder is removed at exit


def open_reference(file: FileReference) -> int:
    """Opens the file that a message refers to and checks that it is the one meant. Raises CannotCross."""
    try:
        path, pid, number, size = file.get("path") or "", file.get("pid", 0), file.get("fd", -1), file["size"]
        if not path:
            path = f"/proc/{'self' if pid == os.getpid() else int(pid)}/fd/{int(number)}"
        flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(path, flags)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CannotCross(f"a reference to a memory file that can not be read: {error}") from error
    except OSError as error:
        raise CannotCross(f"opening memory file {file.get('id')!r}: {error}") from error
    status = os.fstat(descriptor)
    inode = file.get("inode") or status.st_ino
    if status.st_size != size or status.st_ino != inode:
        os.close(descriptor)
        raise CannotCross(
            f"memory file {file.get('id')!r} is not the one its sender meant: inode {status.st_ino} of"
            f" {status.st_size} bytes, expected {inode} of {size}"
        )
    return descriptor


def map_shared(descriptor: int, size: int) -> mmap.mmap:
    """Maps a file so that writes reach it: for its maker alone."""
    return mmap.mmap(descriptor, size, access=mmap.ACCESS_WRITE, **_UNTRACKED)


def map_private(descriptor: int, size: int) -> mmap.mmap:
    """Maps a file copy-on-write: what is written stays with the writer."""
    return mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY, **_UNTRACKED)


def _private_folder() -> str:
    """This process's folder, made when first needed and removed at exit; those of dead processes go too."""
    global _folder
    if _folder is None or not os.path.isdir(_folder):
        import atexit
        import shutil
        import tempfile

        user = os.getuid() if hasattr(os, "getuid") else "user"
        base = os.path.join(tempfile.gettempdir(), f"comfy-supervisor-files-{user}")
        os.makedirs(base, mode=0o700, exist_ok=True)
        if hasattr(os, "getuid") and (os.stat(base).st_uid != os.getuid() or os.stat(base).st_mode & 0o077):
            raise CannotCross(f"{base} is open to others: remove it", "quota")
        for entry in os.listdir(base):
            if entry.isdigit() and not _alive(int(entry)):
                shutil.rmtree(os.path.join(base, entry), ignore_errors=True)
        _folder = os.path.join(base, str(os.getpid()))
        os.makedirs(_folder, mode=0o700, exist_ok=True)
        atexit.register(shutil.rmtree, _folder, True)
    return _folder


def _alive(pid: int) -> bool:
    if os.name == "nt":
        return True  # there, os.kill would end it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
