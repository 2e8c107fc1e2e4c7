"""What a backend must be able to do for the sampler."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

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
