"""Work on a CUDA or ROCm device through PyTorch."""

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

_FALLBACK_L2_BYTES = 128 << 20
_CYCLES_PER_NS = 2.0  # clocks reach 2 GHz; at a lower clock the spin only takes longer


class TorchCudaBackend:
    """Events on the current stream; work that a function puts on other streams is not seen."""

    name = "cuda"
    clock = "CUDA events"
    asynchronous = True
    resolution_ns = RESOLUTION_NS

    def __init__(self) -> None:
        import torch

        self._torch = torch
        facts = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.device = str(facts.name)
        self.cache_bytes: int | None = int(getattr(facts, "L2_cache_size", 0)) or _FALLBACK_L2_BYTES
        self._watch = ClockWatch(getattr(facts, "uuid", None))
        self._flusher: Any = None
        self._events = Device(
            new_event=lambda: torch.cuda.Event(enable_timing=True),
            record=lambda event: event.record(),
            happened=lambda event: bool(event.query()),
            between_ms=lambda start, stop: float(start.elapsed_time(stop)),
            spin_ns=lambda ns: torch.cuda._sleep(int(ns * _CYCLES_PER_NS)),
            flush=self._flush,
            synchronize=torch.cuda.synchronize,
        )

    def finish(self, result: Any) -> None:
        """Wait for the device."""
        self._torch.cuda.synchronize()

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
            self._flusher = self._torch.empty(
                self.cache_bytes, dtype=self._torch.uint8, device="cuda"
            )
        self._flusher.zero_()
