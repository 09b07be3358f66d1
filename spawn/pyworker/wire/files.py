"""Making and mapping memory files: anonymous ones on Linux, named ones in a folder elsewhere."""

from __future__ import annotations

import errno
import mmap
import os
import sys
from typing import Any

from .errors import CannotCross

PAGE = mmap.PAGESIZE
FileReference = dict[str, Any]  # Go's wire.File

_UNTRACKED: dict[str, Any] = (
    {"trackfd": False} if sys.version_info >= (3, 13) and os.name == "posix" else {}
)
ANONYMOUS = hasattr(os, "memfd_create")  # memory files have no path, and are opened through /proc
_folder: str | None = None


def create(name: str, size: int, folder: str) -> tuple[int, str]:
    """A new file of `size` bytes whose memory is allocated, not promised: (descriptor, path or "").

    `folder` is where it lies when there are no memory files. Raises CannotCross where there is no
    room.
    """
    descriptor, path = -1, ""
    try:
        if ANONYMOUS:
            descriptor = os.memfd_create(f"comfy-supervisor-{name}", os.MFD_CLOEXEC)
        else:
            path = os.path.join(folder or _own_folder(), name)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o600)
        _allocate(descriptor, size)
    except OSError as error:
        discard(descriptor, path)
        what = f"space in {os.path.dirname(path)}" if path else "memory"
        if error.errno in (errno.ENOSPC, errno.ENOMEM):
            raise CannotCross(
                f"there is no {what} for a memory file of {size} bytes: free some, or send less"
                " at once",
                "quota",
            ) from error
        raise CannotCross(f"making a memory file of {size} bytes: {error}", "quota") from error
    return descriptor, path


def _allocate(descriptor: int, size: int) -> None:
    """A full file system is an error here, not a SIGBUS at a later write."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    elif os.name == "nt":
        os.ftruncate(descriptor, size)  # which allocates there
    else:
        zeros = bytes(min(size, 1 << 20))
        left = size
        while left:
            left -= os.write(descriptor, memoryview(zeros)[: min(left, len(zeros))])


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
    """Opens the file that a message refers to and checks that it is the one meant. Raises
    CannotCross.
    """
    try:
        path, pid, number, size = (
            file.get("path") or "",
            file.get("pid", 0),
            file.get("fd", -1),
            file["size"],
        )
        if not path:
            path = f"/proc/{'self' if pid == os.getpid() else int(pid)}/fd/{int(number)}"
        flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(path, flags)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CannotCross(f"a reference to a memory file that can not be read: {error}") from error
    except OSError as error:
        if error.errno == errno.ENOENT and path.startswith("/proc/") and _has_ended(int(pid)):
            raise CannotCross(
                f"memory file {file.get('id')!r} went with process {pid}, which has ended", "gone"
            ) from error
        raise CannotCross(f"opening memory file {file.get('id')!r}: {error}") from error
    status = os.fstat(descriptor)
    inode = file.get("inode") or status.st_ino
    if status.st_size != size or status.st_ino != inode:
        os.close(descriptor)
        raise CannotCross(
            f"memory file {file.get('id')!r} is not the one its sender meant: inode"
            f" {status.st_ino} of {status.st_size} bytes, expected {inode} of {size}"
        )
    return descriptor


def _has_ended(pid: int) -> bool:
    """Whether a process has ended or is about to: then it has no descriptors any more."""
    try:
        return not os.listdir(f"/proc/{pid}/fd")
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False


def map_shared(descriptor: int, size: int) -> mmap.mmap:
    """Maps a file so that writes reach it: for its maker alone."""
    return mmap.mmap(descriptor, size, access=mmap.ACCESS_WRITE, **_UNTRACKED)


def map_private(descriptor: int, size: int) -> mmap.mmap:
    """Maps a file copy-on-write: what is written stays with the writer."""
    return mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY, **_UNTRACKED)


def _own_folder() -> str:
    """A folder of this process, for when the supervisor named none; removed at exit."""
    global _folder
    if _folder is None or not os.path.isdir(_folder):
        import atexit
        import shutil
        import tempfile

        _folder = tempfile.mkdtemp(prefix="comfy-supervisor-files-")
        atexit.register(shutil.rmtree, _folder, True)
    return _folder
