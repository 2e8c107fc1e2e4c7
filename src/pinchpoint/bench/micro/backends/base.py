"""What a backend must be able to do for the sampler."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import repeat
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any, Protocol

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.monitor.environment.host import cpu_model

Call = Callable[[], Any]


@dataclass(frozen=True)
class Block:
    """Some calls in a row.

    ``device_ns`` is their time where the work is done, all calls together; ``issue_ns`` the time
    that the host took to hand them over. ``queue_full`` tells whether the device had the whole
    block before it began, so that the host cannot have slowed it; None where that has no meaning.
    """

    device_ns: float
    issue_ns: float
    queue_full: bool | None = None


@dataclass(frozen=True)
class ClockState:
    """The clock of a device at one moment, and why it is there (bits of monitor.reasons)."""

    sm_mhz: float | None
    reasons: int | None


class Backend(Protocol):
    """One way to run and time work. Times are nanoseconds."""

    name: str
    device: str
    clock: str  # what the times are read from, in words
    asynchronous: bool  # the host may run ahead of the work
    resolution_ns: float
    cache_bytes: int | None  # the last-level cache that a flush must cover

    def finish(self, result: Any) -> None:
        """Wait until all work so far is done; ``result`` is the last one."""
        ...

    def block(self, call: Call, calls: int, *, issue_ns: float) -> Block:
        """Time ``calls`` calls in a row; ``issue_ns`` estimates what one costs the host."""
        ...

    def isolated(self, call: Call, count: int, *, cold: bool, issue_ns: float) -> list[Block]:
        """Time single calls, each on its own; with a flushed cache if ``cold``."""
        ...

    def sustained(self, call: Call, calls: int, *, seconds: float) -> Iterator[Block]:
        """Blocks of ``calls`` calls for that long, without a pause between them."""
        ...

    def clock_state(self) -> ClockState | None:
        """The device's clock now; None if nobody tells."""
        ...

    def quiet(self) -> Any:
        """A context in which the host does nothing else (garbage collection off)."""
        ...


def one_block_after_another(
    block: Callable[[], Block], seconds: float, now: Callable[[], float] = perf_counter
) -> Iterator[Block]:
    """``sustained`` where a block ends when its work does."""
    begin = now()
    while True:
        yield block()
        if now() - begin >= seconds:
            return


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Garbage collection off, as in ``timeit``."""
    import gc

    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# ------------------------------------------------------------------------------------------------
# Work through JAX, on whatever device it uses.
#
# JAX has no events. Dispatch is asynchronous, so calls are handed over back to back and waited
# for once; the time of a block is what the host's clock shows between the first hand-over and the
# end of the last result. For isolated calls it contains one dispatch, which the result says.


_FLUSH_BYTES = 256 << 20  # JAX does not tell the cache size; no cache today is larger


class JaxBackend:
    """``block_until_ready`` on what the function returned."""

    name = "jax"
    clock = "host clock to block_until_ready"
    asynchronous = True
    resolution_ns = 1_000.0  # of one dispatch and wait

    def __init__(self) -> None:
        import jax

        self._jax = jax
        first = jax.devices()[0]
        self.device = f"{first.platform} {getattr(first, 'device_kind', '')}".strip()
        self.cache_bytes: int | None = _FLUSH_BYTES
        self._flush_call: Any = None

    def finish(self, result: Any) -> None:
        """Wait for the result, and for everything that was handed over before it."""
        self._jax.block_until_ready(result)

    def block(self, call: Call, calls: int, *, issue_ns: float) -> Block:
        """Results are kept until the end, so that none is dropped before it is computed."""
        begin = perf_counter_ns()
        results = [call() for _ in range(calls)]
        issued = perf_counter_ns()
        self._jax.block_until_ready(results)
        return Block(perf_counter_ns() - begin, issued - begin)

    def isolated(self, call: Call, count: int, *, cold: bool, issue_ns: float) -> list[Block]:
        """Each call is waited for."""
        blocks = []
        for _ in range(count):
            if cold:
                self._flush()
            begin = perf_counter_ns()
            result = call()
            issued = perf_counter_ns()
            self._jax.block_until_ready(result)
            blocks.append(Block(perf_counter_ns() - begin, issued - begin))
        return blocks

    def sustained(self, call: Call, calls: int, *, seconds: float) -> Iterator[Block]:
        """Block after block."""
        return one_block_after_another(lambda: self.block(call, calls, issue_ns=0.0), seconds)

    def clock_state(self) -> ClockState | None:
        """Not known through JAX."""
        return None

    def quiet(self) -> AbstractContextManager[None]:
        """Garbage collection off."""
        return no_garbage_collection()

    def _flush(self) -> None:
        if self._flush_call is None:
            numpy = self._jax.numpy
            fill = self._jax.jit(lambda x: numpy.full((_FLUSH_BYTES // 4,), x, numpy.float32))
            self._flush_call = lambda: fill(0.0)
        self._jax.block_until_ready(self._flush_call())


# ------------------------------------------------------------------------------------------------
# Work on the CPU: NumPy, PyTorch on the CPU, plain Python. The clock is the host's.


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
