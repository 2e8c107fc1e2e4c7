"""Timing with device events, shared by the backends of CUDA.

The trick that keeps the host out of the result: a kernel that only spins holds the stream
until start event, work and stop event are all queued. Then the device runs them without waiting
for the host. Whether that succeeded is checked: if the start event has already happened when the
last thing is queued, the spin was too short, and it is tried again with a longer one.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from pinchpoint.bench.micro.backends.base import Block, Call, ClockState

RESOLUTION_NS = 500.0  # of cudaEventElapsedTime, as its documentation says
SPIN_FACTOR = 1.5  # over the expected time to queue a block
SPIN_EXTRA_NS = 50_000.0  # a hiccup of the host while it queues a short block
SPIN_MOST_NS = 300_000_000.0  # a display device ends kernels that run for seconds
TRIES = 4  # each with a spin twice as long; then the queue ran empty for another reason
BLOCKS_AHEAD = 8  # of at least half a millisecond each: a pause of the host does not show
ISOLATED_AT_ONCE = 16  # pairs of events behind one spin; well under the launch queue's depth


@dataclass(frozen=True)
class Device:
    """What a CUDA library must offer."""

    new_event: Callable[[], Any]
    record: Callable[[Any], None]
    happened: Callable[[Any], bool]
    between_ms: Callable[[Any, Any], float]
    spin_ns: Callable[[float], None]
    flush: Callable[[], None]
    synchronize: Callable[[], None]


def time_block(device: Device, call: Call, calls: int, issue_ns: float) -> Block:
    """``calls`` calls between two events, queued behind a spin."""

    def queue() -> list[tuple[Any, Any]]:
        start, stop = device.new_event(), device.new_event()
        device.record(start)
        for _ in range(calls):
            call()
        device.record(stop)
        return [(start, stop)]

    pairs, issued_ns, full = _queued(device, queue, calls * issue_ns)
    return Block(device.between_ms(*pairs[0]) * 1e6, issued_ns, full)


def time_isolated(
    device: Device, call: Call, count: int, *, cold: bool, issue_ns: float
) -> list[Block]:
    """Single calls, each between its own events, several of them behind one spin."""
    blocks: list[Block] = []
    while len(blocks) < count:
        several = min(ISOLATED_AT_ONCE, count - len(blocks))

        def queue(several: int = several) -> list[tuple[Any, Any]]:
            pairs = []
            for _ in range(several):
                if cold:
                    device.flush()
                start, stop = device.new_event(), device.new_event()
                device.record(start)
                call()
                device.record(stop)
                pairs.append((start, stop))
            return pairs

        pairs, issued_ns, full = _queued(device, queue, several * (issue_ns + 20_000.0))
        blocks += [
            Block(device.between_ms(a, b) * 1e6, issued_ns / several, full) for a, b in pairs
        ]
    return blocks


def time_sustained(device: Device, call: Call, calls: int, seconds: float) -> Iterator[Block]:
    """Blocks between events that follow one another in the stream; the host stays some blocks
    ahead and waits only for the oldest of them."""
    waiting: deque[tuple[Any, Any, float, bool]] = deque()
    device.synchronize()
    last = device.new_event()
    device.record(last)
    begin = now = perf_counter_ns()
    while now - begin < seconds * 1e9:
        asked = perf_counter_ns()
        for _ in range(calls):
            call()
        now, mark = perf_counter_ns(), device.new_event()
        device.record(mark)
        waiting.append((last, mark, now - asked, not device.happened(last)))
        last = mark
        if len(waiting) > BLOCKS_AHEAD:
            yield _ended(device, *waiting.popleft())
    for one in waiting:
        yield _ended(device, *one)


def _ended(device: Device, start: Any, stop: Any, issue_ns: float, full: bool) -> Block:
    while not device.happened(stop):
        pass
    return Block(device.between_ms(start, stop) * 1e6, issue_ns, full)


def _queued(
    device: Device, queue: Callable[[], list[tuple[Any, Any]]], expected_ns: float
) -> tuple[list[tuple[Any, Any]], float, bool]:
    """Queue everything behind a spin that is long enough; the last try counts as it is."""
    spin_ns = SPIN_FACTOR * expected_ns + SPIN_EXTRA_NS
    for left in reversed(range(TRIES)):
        device.synchronize()
        device.spin_ns(min(spin_ns, SPIN_MOST_NS))
        begin = perf_counter_ns()
        pairs = queue()
        issued_ns = perf_counter_ns() - begin
        full = not device.happened(pairs[0][0])
        device.synchronize()
        if full or left == 0 or spin_ns > SPIN_MOST_NS:
            return pairs, issued_ns, full
        spin_ns = 2 * max(spin_ns, issued_ns)
    raise AssertionError("the last try always returns")


class ClockWatch:
    """Reads SM clock and event reasons of the device with this UUID; silent where NVML is not.

    NVML numbers devices in its own order, so only the UUID finds the right one.
    """

    def __init__(self, uuid: object) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        if uuid is None:
            return
        try:
            import pynvml

            pynvml.nvmlInit()
            text = str(uuid)
            full = text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}"
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(full)
            self._nvml = pynvml
        except Exception:  # no package, no driver, a container without NVML: no clock is known
            self._nvml = None

    def now(self) -> ClockState | None:
        """The state, or None."""
        if self._nvml is None:
            return None
        return ClockState(
            self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM),
            self._ask("nvmlDeviceGetCurrentClocksEventReasons"),
        )

    def _ask(self, name: str, *arguments: object) -> Any:
        try:
            return getattr(self._nvml, name)(self._handle, *arguments)
        except (AttributeError, self._nvml.NVMLError):
            return None
