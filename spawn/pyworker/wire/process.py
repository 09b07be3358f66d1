"""What identifies a process on this machine."""

from __future__ import annotations


def start_time(pid: int) -> str:
    """When a process started, as field 22 of /proc/PID/stat; "" where there is no such file."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[19].decode()
    except (OSError, IndexError, ValueError):
        return ""
