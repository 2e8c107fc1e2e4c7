"""Work on a CUDA device through CuPy."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from pinchpoint.bench.micro.backends.base import Block, Call, ClockState, no_garbage_collection
from pinchpoint.bench.micro.backends.events import (
    RESOLUTION_NS,
    ClockWatch,
    Device,
    time_block,
    time_isolated,
    time_sustained,
)

_SPIN = """
extern "C" __global__ void spin(long long cycles) {
    long long begin = clock64();
    while (clock64() - begin < cycles) {}
}
"""
_CYCLES_PER_NS = 2.0  # clocks reach 2 GHz; at a lower clock the spin only takes longer
_FALLBACK_L2_BYTES = 128 << 20


class CupyBackend:
    """Events on the current stream of CuPy."""

    name = "cupy"
    clock = "CUDA events"
    asynchronous = True
    resolution_ns = RESOLUTION_NS

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        facts = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
        name = facts["name"]
        self.device = name.decode() if isinstance(name, bytes) else str(name)
        self.cache_bytes: int | None = int(facts.get("l2CacheSize", 0)) or _FALLBACK_L2_BYTES
        self._watch = ClockWatch(_uuid_text(facts.get("uuid")))
        self._flusher: Any = None
        spin = cupy.RawKernel(_SPIN, "spin")
        self._events = Device(
            new_event=cupy.cuda.Event,
            record=lambda event: event.record(),
            happened=lambda event: bool(event.done),
            between_ms=lambda start, stop: float(cupy.cuda.get_elapsed_time(start, stop)),
            spin_ns=lambda ns: spin((1,), (1,), (cupy.int64(ns * _CYCLES_PER_NS),)),
            flush=self._flush,
            synchronize=lambda: cupy.cuda.get_current_stream().synchronize(),
        )

    def finish(self, result: Any) -> None:
        """Wait for the stream."""
        self._events.synchronize()

    def block(self, call: Call, calls: int, *, issue_ns: float) -> Block:
        """Back to back, behind a spin."""
        return time_block(self._events, call, calls, issue_ns)

    def isolated(self, call: Call, count: int, *, cold: bool, issue_ns: float) -> list[Block]:
        """One by one; a flush writes exactly the L2's size before the start event."""
        return time_isolated(self._events, call, count, cold=cold, issue_ns=issue_ns)

    def sustained(self, call: Call, calls: int, *, seconds: float) -> Iterator[Block]:
        """Events between blocks, and never an empty queue."""
        return time_sustained(self._events, call, calls, seconds)

    def clock_state(self) -> ClockState | None:
        """From NVML."""
        return self._watch.now()

    def quiet(self) -> AbstractContextManager[None]:
        """Garbage collection off."""
        return no_garbage_collection()

    def _flush(self) -> None:
        if self._flusher is None:
            self._flusher = self._cupy.empty(self.cache_bytes, dtype=self._cupy.uint8)
        self._flusher.data.memset_async(0, self._flusher.nbytes)


def _uuid_text(raw: Any) -> str | None:
    """The runtime gives 16 bytes; NVML writes them as text."""
    if not isinstance(raw, bytes) or len(raw) < 16:
        return None
    digits = raw[:16].hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(parts)
