"""How much memory this process holds."""

import os
import resource
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """Resident memory now; None where the system does not tell cheaply."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


def peak_resident_bytes() -> int:
    """The most resident memory so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes there, KiB elsewhere


def torch_peak_bytes() -> tuple[int, int] | None:
    """Most allocated and most reserved device memory of torch's allocator, all devices added."""
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        devices = range(torch.cuda.device_count())
        allocated = sum(int(torch.cuda.max_memory_allocated(d)) for d in devices)
        return allocated, sum(int(torch.cuda.max_memory_reserved(d)) for d in devices)
    except (AttributeError, RuntimeError):
        return None
