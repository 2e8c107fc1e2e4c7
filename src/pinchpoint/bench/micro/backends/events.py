"""Timing with device events, shared by the backends of CUDA.

The trick that keeps the host out of the result: a kernel that only spins holds the stream
until start event, work and stop event are all queued. Then the device runs them without waiting
for the host. Whether that succeeded is checked: if the start event has already happened when the
last thing is queued, the spin was too short, and it is tried again with a longer one.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from time import perf_counter_ns
from typing import Any

from pinchpoint.bench.micro.backends.base import Block, Call, ClockState, no_garbage_collection
from pinchpoint.frozen import dataclass

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


# ------------------------------------------------------------------------------------------------
# Backends: work on a CUDA or ROCm device through PyTorch, and on a CUDA device through CuPy.


_FALLBACK_L2_BYTES = 128 << 20  # no L2 today is larger
_CYCLES_PER_NS = 2.0  # clocks reach 2 GHz; at a lower clock the spin only takes longer


class _OnEvents:
    """What libraries with events share."""

    clock = "CUDA events"
    asynchronous = True
    resolution_ns = RESOLUTION_NS
    _events: Device
    _watch: ClockWatch

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


class TorchCudaBackend(_OnEvents):
    """Events on the current stream; work that a function puts on other streams is not seen."""

    name = "cuda"

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

    def _flush(self) -> None:
        if self._flusher is None:
            self._flusher = self._torch.empty(
                self.cache_bytes, dtype=self._torch.uint8, device="cuda"
            )
        self._flusher.zero_()


_SPIN = """
extern "C" __global__ void spin(long long cycles) {
    long long begin = clock64();
    while (clock64() - begin < cycles) {}
}
"""


class CupyBackend(_OnEvents):
    """Events on the current stream of CuPy."""

    name = "cupy"

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
