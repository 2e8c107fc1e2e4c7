"""What a process is called, for people."""

import psutil


def process_name(pid: int) -> str | None:
    """The program's name, None if the process is gone or hidden (another namespace or user)."""
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return None
