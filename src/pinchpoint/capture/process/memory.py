"""How much memory this process holds, and the history of torch's allocator."""

import os
import resource
import sys
from pathlib import Path
from typing import Any

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


MOST_ENTRIES = 100_000  # the newest allocations and frees; a file of some 50 MB


class MemoryHistory:
    """Records from when CUDA starts; writes snapshots for ``pinchpoint memory`` into a folder."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder, self._stem = folder, stem
        self._recording = False

    def start(self, torch_cuda: Any) -> None:
        """Begin as soon as the program itself initialises CUDA, not before."""
        torch_cuda._lazy_call(self._begin)

    def write(self, label: str) -> Path | None:
        """Write a snapshot; None if there is nothing to write. Raises OSError or RuntimeError."""
        if not self._recording:
            return None
        target = self._folder / f"{self._stem}.{label}.pickle"
        beside = target.with_name(f".{target.name}.tmp")
        try:
            sys.modules["torch"].cuda.memory._dump_snapshot(str(beside))
            return beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)

    def _begin(self) -> None:
        torch = sys.modules["torch"]
        torch.cuda.memory._record_memory_history(max_entries=MOST_ENTRIES)
        observe = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
        if observe is not None:
            observe(lambda *_: self.write("out-of-memory"))
        self._recording = True
