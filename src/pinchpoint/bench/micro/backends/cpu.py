"""Work on the CPU: NumPy, PyTorch on the CPU, plain Python. The clock is the host's."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import repeat
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from pinchpoint.bench.micro.backends.base import (
    Block,
    Call,
    ClockState,
    no_garbage_collection,
    one_block_after_another,
)
from pinchpoint.monitor.environment.host import cpu_model

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_FALLBACK_CACHE_BYTES = 64 << 20  # covers the last-level cache slice of most servers
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}


class CpuBackend:
    """Calls return when the work is done."""

    name = "cpu"
    clock = "host monotonic clock"
    asynchronous = False
    resolution_ns = 50.0  # of perf_counter_ns, with the cost of reading it

    def __init__(self) -> None:
        self.device = cpu_model() or "CPU"
        self.cache_bytes: int | None = last_level_cache_bytes()
        self._flusher: np.ndarray[Any, np.dtype[np.uint8]] | None = None

    def finish(self, result: Any) -> None:
        """Nothing runs ahead."""

    def block(self, call: Call, calls: int, *, issue_ns: float) -> Block:
        """The loop costs about 20 ns a call, which is not taken out."""
        begin = perf_counter_ns()
        for _ in repeat(None, calls):
            call()
        taken = perf_counter_ns() - begin
        return Block(taken, taken)

    def isolated(self, call: Call, count: int, *, cold: bool, issue_ns: float) -> list[Block]:
        """One clock reading before and after each call."""
        blocks = []
        for _ in repeat(None, count):
            if cold:
                self._flush()
            begin = perf_counter_ns()
            call()
            taken = perf_counter_ns() - begin
            blocks.append(Block(taken, taken))
        return blocks

    def sustained(self, call: Call, calls: int, *, seconds: float) -> Iterator[Block]:
        """Block after block."""
        return one_block_after_another(lambda: self.block(call, calls, issue_ns=0.0), seconds)

    def clock_state(self) -> ClockState | None:
        """CPU clocks move too fast to be read beside a sample."""
        return None

    def quiet(self) -> AbstractContextManager[None]:
        """Garbage collection off."""
        return no_garbage_collection()

    def _flush(self) -> None:
        """Write as much as the last-level cache holds, so that nothing else is left in it."""
        if self._flusher is None:
            self._flusher = np.zeros(self.cache_bytes or _FALLBACK_CACHE_BYTES, np.uint8)
        self._flusher += 1


def last_level_cache_bytes() -> int | None:
    """Size of the largest cache that the first core sees."""
    sizes = []
    for file in _CACHES.glob("index*/size"):
        match = re.fullmatch(r"(\d+)([KM]?)", file.read_text().strip())
        if match:
            sizes.append(int(match[1]) * _UNITS[match[2]])
    return max(sizes, default=None)
