"""Timing of repeated device work: events on a GPU, the clock of the host on a CPU.

A sample is a number of calls back to back, long enough for the timer (events resolve about half a
microsecond) and short enough not to heat the chip. Between samples the device rests.
"""

import statistics
import time
from collections.abc import Callable
from math import isnan, nan
from typing import Any

from pinchpoint.frozen import dataclass
from pinchpoint.inside.quiet import other_threads, queue_clock

SAMPLE_NS = 3_000_000  # under 5 ms: a burst that power limits do not yet reach
SUSTAINED_SAMPLE_NS = 50_000_000  # long enough for clocks to be read while the device works
REST_S = 0.01  # between bursts, so that each starts cool
BURSTS = 5  # the best counts, and how far apart they are is told
# Of a sample on a CPU: alone on 2 CPUs threads waited for one for at most 1 % of it, beside one
# busy program the last of them for 34 to 83 %, and figures were half as high.
MOST_WAITED_RATIO = 0.1
_MOST_TIMES = 3  # as many samples to find enough undisturbed ones: a few seconds in all
_MOST_CALLS = 10_000  # a sample is full with calls of 0.3 µs; shorter ones there are none

Work = Callable[[], Any]


@dataclass(frozen=True)
class Timed:
    """Samples of one piece of work, ns a call, in the order taken."""

    samples_ns: tuple[float, ...]
    waited_ratio: float | None = None  # as ``Machine.waited_ratio``, of the middle sample

    @property
    def median_ns(self) -> float:
        """The middle sample."""
        return statistics.median(self.samples_ns)

    @property
    def best_ns(self) -> float:
        """The fastest sample."""
        return min(self.samples_ns)

    @property
    def spread_ratio(self) -> float:
        """(90th - 10th percentile) / median."""
        ordered = sorted(self.samples_ns)
        low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
        return (high - low) / self.median_ns


class Machine:
    """One device, and how its work is timed."""

    def __init__(self, torch: Any, device: str) -> None:
        self.torch = torch
        self.device = torch.device(device)
        self.on_gpu = self.device.type == "cuda"
        self._own, self._others = queue_clock(), other_threads()

    def sync(self) -> None:
        """Wait for everything that was issued."""
        if self.on_gpu:
            self.torch.cuda.synchronize(self.device)

    def once(self, work: Work, calls: int, watch: Work | None = None) -> float:
        """ns a call of ``calls`` calls back to back; ``watch`` is called while the device works."""
        if not self.on_gpu:
            start = time.perf_counter_ns()
            for _ in range(calls):
                work()
            return (time.perf_counter_ns() - start) / calls
        with self.torch.cuda.device(self.device):
            begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(calls):
                work()
            end.record()
            if watch is not None:
                watch()
            end.synchronize()
            return float(begin.elapsed_time(end)) * 1e6 / calls

    def sample(self, work: Work, calls: int, watch: Work | None = None) -> "tuple[float, float]":
        """ns a call, and for how much of that time the thread that lacked a CPU most waited for
        one; nan where a device works, or the system does not say."""
        if self.on_gpu:
            return self.once(work, calls, watch), nan
        begin_ns, own_ns, others = time.perf_counter_ns(), self._own(), self._others()
        each_ns = self.once(work, calls, watch)
        own_now_ns, others_now = self._own(), self._others()
        took_ns = max(time.perf_counter_ns() - begin_ns, 1)
        if own_ns is None or own_now_ns is None or others is None or others_now is None:
            return each_ns, nan
        queued = [now[1] - others.get(t, now)[1] for t, now in others_now.items()]
        return each_ns, min(max(own_now_ns - own_ns, *queued, 0) / took_ns, 1.0)

    def bursts(
        self,
        work: Work,
        *,
        sample_ns: int = SAMPLE_NS,
        bursts: int = BURSTS,
        rest_s: float = REST_S,
        watch: Work | None = None,
    ) -> Timed:
        """Short samples with rests between them; the first, which warms up, is dropped.

        On a CPU also those in which others took it, as far as ``bursts`` are left of thrice as
        many; else all of them count, and say so.
        """
        self.once(work, 1)
        each = max(self.once(work, 3), 1.0)
        calls = int(min(max(sample_ns / each, 1), _MOST_CALLS))
        samples: list[tuple[float, float]] = []
        self.once(work, calls, watch)
        while len(samples) < _MOST_TIMES * bursts:
            time.sleep(rest_s if self.on_gpu else 0)
            samples.append(self.sample(work, calls, watch))
            alone = [one for one in samples if not one[1] > MOST_WAITED_RATIO]
            if len(alone) >= bursts:
                return _timed(alone)
        return _timed(samples)

    def sustained(self, work: Work, seconds: float, watch: Work | None = None) -> Timed:
        """Samples without rest for a while; only the last third, when heat has settled."""
        each = max(self.once(work, 2), 1.0)
        calls = int(min(max(SUSTAINED_SAMPLE_NS / each, 1), _MOST_CALLS))
        samples: list[tuple[float, float]] = []
        until = time.monotonic() + seconds
        while time.monotonic() < until or len(samples) < 3:
            samples.append(self.sample(work, calls, watch))
        return _timed(samples[-max(len(samples) // 3, 1) :])


def _timed(samples: list[tuple[float, float]]) -> Timed:
    """Samples with their waits, nan where not known."""
    waited = statistics.median(waited for _, waited in samples)
    return Timed(tuple(ns for ns, _ in samples), None if isnan(waited) else waited)


# ------------------------------------------------------------------------------------------------
# Clocks, power and what holds them down, through NVML; all None where it is not there.


_REASONS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True)
class State:
    """One reading."""

    sm_clock_hz: float | None = None
    power_w: float | None = None
    throttled: tuple[str, ...] = ()


class ClockRates:
    """One NVIDIA device as NVML sees it; without NVML every answer is empty.

    ``seen`` is the state at the last ``watch``, which is meant to be called while work runs.
    """

    def __init__(self, bus_id: str | None) -> None:
        self.seen = State()
        self._nvml: Any = None
        self._handle: Any = None
        if bus_id is None:
            return
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())
            self._nvml = pynvml
        except Exception:  # no driver, no library, no permission: the figures go without clocks
            self._nvml = None

    def watch(self) -> None:
        """Note the state now."""
        self.seen = self.state()

    def state(self) -> State:
        """Clock, power and throttling now."""
        if self._nvml is None:
            return State()
        clock = self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM)
        power = self._ask("nvmlDeviceGetPowerUsage")
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return State(
            None if clock is None else clock * 1e6,
            None if power is None else power / 1e3,
            tuple(name for bit, name in _REASONS.items() if bits is not None and bits & bit),
        )

    def max_sm_clock_hz(self) -> float | None:
        """The highest clock that the device may run at."""
        if self._nvml is None:
            return None
        clock = self._ask("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_SM)
        return None if clock is None else clock * 1e6

    def facts(self) -> dict[str, Any]:
        """What a fingerprint needs: driver, power limit, highest clocks."""
        if self._nvml is None:
            return {}
        limit = self._ask("nvmlDeviceGetPowerManagementLimit")
        memory = self._ask("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_MEM)
        clock = self.max_sm_clock_hz()
        try:
            driver = self._nvml.nvmlSystemGetDriverVersion()
        except Exception:
            driver = None
        found = {
            "driver": driver.decode() if isinstance(driver, bytes) else driver,
            "power_limit_w": None if limit is None else round(limit / 1e3),
            "max_sm_clock_mhz": None if clock is None else round(clock / 1e6),
            "max_memory_clock_mhz": memory,
        }
        return {k: v for k, v in found.items() if v is not None}

    def _ask(self, question: str, *more: Any) -> int | None:
        try:
            return int(getattr(self._nvml, question)(self._handle, *more))
        except Exception:  # not supported on this device, or by this driver
            return None
