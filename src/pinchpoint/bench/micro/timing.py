"""The result of timing one function."""

from dataclasses import field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pinchpoint.bench.statistics.intervals import (
    Interval,
    neighbouring_batches_alike,
    widest_batch_interval,
)
from pinchpoint.bench.statistics.series import Modes, lag1_autocorrelation, mad, two_modes
from pinchpoint.frozen import dataclass

# ------------------------------------------------------------------------------------------------
# When enough has been measured: the interval of the median is narrow, or the time is up.
#
# Precision, not spread: a criterion on the standard deviation never ends on noisy operations and
# says nothing about the median. Each look is a chance to stop on an interval that is narrow by
# luck, so looks are few: each comes after twice as many samples as the one before, and none
# counts while neighbouring batches of samples are alike, which means that the machine changes
# more slowly than was looked.


PRECISION = 0.005  # half width of the 95 % interval over the median
LEAST_SAMPLES = 200  # before the first look: 20 a batch
SHORT_SAMPLES = 30  # the least for a verdict on the precision when the time is up
LEAST_SECONDS = 0.5  # before the first look, all modes together
MOST_SAMPLES = 5_000  # of a call of microseconds; more change no digit that is shown
FLOOR = 3  # even a slow operation gets these, whatever the time


def median_interval(samples: NDArray[np.float64], least_ratio: float) -> Interval | None:
    """The interval of the median of a timing; None below 20 samples."""
    return widest_batch_interval(samples, least_ratio=least_ratio)


@dataclass(frozen=True)
class StoppingRule:
    """Stop at this precision, not before the least samples, and at the latest at the others.

    ``most_seconds`` are for each mode, ``least_seconds`` for all of them; ``sustained_seconds`` is
    how long the mode without pauses runs, 0 to leave it out.
    """

    precision: float = PRECISION
    least_samples: int = LEAST_SAMPLES
    most_samples: int = MOST_SAMPLES
    least_seconds: float = LEAST_SECONDS
    most_seconds: float = 2.0
    sustained_seconds: float = 0.0

    def reached(self, samples: NDArray[np.float64]) -> bool:
        """Whether the median is known well enough."""
        if len(samples) < min(self.least_samples, SHORT_SAMPLES):
            return False
        interval = median_interval(samples, 0.0)
        middle = float(np.median(samples))
        narrow = interval is not None and interval[1] - middle <= self.precision * middle
        return narrow and not neighbouring_batches_alike(samples)

    def out_of_budget(self, count: int, seconds: float, modes: int = 1) -> bool:
        """Whether to stop without the precision."""
        late = seconds >= modes * self.most_seconds
        return count >= self.most_samples or (late and count >= FLOOR)


# ------------------------------------------------------------------------------------------------
# The result of timing one function.


@dataclass(frozen=True, eq=False)
class Samples:
    """Times of one call, one sample a block of ``calls`` calls; nanoseconds.

    ``mode``: ``batched`` (some calls back to back, caches hot, the device rested), ``hot`` (single
    calls, caches hot), ``cold`` (single calls after the last-level cache was overwritten) or
    ``sustained`` (back to back for a second or more, the device hot and at its power limit).
    """

    mode: str
    calls: int
    call_ns: NDArray[np.float64]
    issue_ns: float  # host time to hand over one call, median
    queue_full_ratio: (
        float | None
    )  # share of blocks in which the host cannot have slowed the device
    disturbed_ratio: float | None  # share of samples with a slowed clock; None: clock not known
    sm_clock_mhz: float | None  # median
    precise: bool  # the stopping rule's precision was reached
    clock_step_ns: float = 0.0  # what the clock cannot tell of a call of a block

    @cached_property
    def modes(self) -> Modes | None:
        """Two lengths that calls have; None where they have one."""
        return two_modes(self.call_ns)

    @property
    def median_ns(self) -> float:
        """Median time of a call."""
        return float(np.median(self.call_ns))

    @property
    def ci95_ns(self) -> tuple[float, float] | None:
        """Interval of the median from batch medians; None below 20 samples."""
        return median_interval(self.call_ns, self.clock_step_ns / self.median_ns)

    @property
    def mad_ns(self) -> float:
        """Median absolute deviation."""
        return mad(self.call_ns)

    @property
    def autocorrelation(self) -> float | None:
        """Of neighbouring samples."""
        return lag1_autocorrelation(self.call_ns)

    @property
    def burst_and_sustained_ns(self) -> tuple[float, float]:
        """Medians of the first and the last fifth: what heat and power do."""
        fifth = max(1, len(self.call_ns) // 5)
        return float(np.median(self.call_ns[:fifth])), float(np.median(self.call_ns[-fifth:]))


@dataclass(frozen=True)
class Remark:
    """Something a reader must know: a mistake that a simpler timing would have made (``id`` of the
    taxonomy), or a reason to doubt this one."""

    id: str
    text: str


@dataclass(frozen=True, eq=False)
class Timing:
    """What one call of a function takes."""

    name: str
    backend: str
    device: str
    clock: str
    resolution_ns: float
    batched: Samples
    hot: Samples
    cold: Samples | None
    first_call_ns: float
    warmup_calls: int
    warmup_s: float
    warmup_converged: bool
    compilations: int  # while timed; compiled code was then part of the result
    host_bound: bool  # one call costs the host more than the device
    invalid_reasons: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()
    flop: float | None = None
    moved_bytes: float | None = None
    sustained: Samples | None = None
    unknown: dict[str, str] = field(default_factory=dict)

    @property
    def every_mode(self) -> tuple[Samples, ...]:
        """The modes that were measured."""
        modes = (self.batched, self.hot, self.cold, self.sustained)
        return tuple(samples for samples in modes if samples is not None)

    @property
    def median_ns(self) -> float:
        """The headline: batched, which is what a stream sees that does not stay at full load."""
        return self.batched.median_ns

    def flop_per_s(self) -> float | None:
        """Achieved arithmetic rate, batched."""
        return None if self.flop is None else self.flop / (self.median_ns * 1e-9)

    def bytes_per_s(self) -> float | None:
        """Rate of the least traffic (inputs and outputs once), cold where that was measured."""
        base = self.cold or self.batched
        return None if self.moved_bytes is None else self.moved_bytes / (base.median_ns * 1e-9)

    def __str__(self) -> str:
        return in_words(self)


_UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))


def in_words(timing: Timing) -> str:
    """For ``print``."""
    lines = [f"{timing.name} on {timing.device} ({timing.backend}, {timing.clock})"]
    lines += [_line(samples) for samples in timing.every_mode]
    if (rate := timing.flop_per_s()) is not None:
        lines.append(f"  {rate / 1e12:.3g} TFLOP/s")
    if (moved := timing.bytes_per_s()) is not None:
        lines.append(f"  {moved / 1e9:.3g} GB/s at least (inputs and outputs once)")
    lines += [f"  invalid: {reason}" for reason in timing.invalid_reasons]
    lines += [f"  {remark.id}: {remark.text}" for remark in timing.remarks]
    return "\n".join(lines)


def nanoseconds(ns: float) -> str:
    """With a unit that fits."""
    unit, scale = next((u for u in _UNITS if ns >= u[1]), _UNITS[-1])
    return f"{ns / scale:.4g} {unit}"


def _line(samples: Samples) -> str:
    interval = samples.ci95_ns
    text = f"  {samples.mode:9} {nanoseconds(samples.median_ns):>10}"
    if interval:
        text += f"  (95 %: {nanoseconds(interval[0])} to {nanoseconds(interval[1])})"
    text += f"  {len(samples.call_ns)} samples"
    text += f" of {samples.calls} calls" if samples.calls > 1 else ""
    return text if samples.precise else f"{text}, precision not reached"
