"""Warm-up and sampling, the same for every backend."""

from collections.abc import Sequence
from dataclasses import field
from time import perf_counter, perf_counter_ns

import numpy as np

from pinchpoint.bench.micro.backends.base import Backend, Block, Call, ClockState
from pinchpoint.bench.micro.timing import Samples, StoppingRule
from pinchpoint.frozen import dataclass
from pinchpoint.monitor import reasons

LEAST_WARMUP_S = 0.1  # clocks ramp over tens of milliseconds
MOST_WARMUP_S = 5.0  # a device that still changes then will be marked by its clock
STEADY_WITHIN = 0.03  # two windows in a row this close
WINDOW_BLOCKS = 5  # blocks whose median one slow block does not move
RESOLUTIONS_A_BLOCK = 1000  # a block is this many resolutions long, so 0.1 % of it
MOST_CALLS_A_BLOCK = 500  # under the depth of the launch queue (about 1000) for one-kernel calls
SLOW_CLOCK = 0.9  # of the highest clock seen; below it a sample counts as disturbed
ROUND = 10  # samples of a mode before it is the next one's turn
SLOW_SAMPLE_NS = 5e6  # of such samples one is taken at a time


@dataclass(frozen=True)
class Warm:
    """What the warm-up found out."""

    call_ns: float
    issue_ns: float
    calls: int
    seconds: float
    converged: bool


def warm_up(backend: Backend, call: Call) -> Warm:
    """Call until two windows of blocks in a row agree, at least 0.1 s and at most 5 s."""
    begin = perf_counter()
    started = perf_counter_ns()
    backend.finish(call())
    first = backend.block(call, 1, issue_ns=float(perf_counter_ns() - started))
    calls, call_ns, issue_ns = 2, max(first.device_ns, 1.0), first.issue_ns
    windows: list[float] = []
    while perf_counter() - begin < MOST_WARMUP_S:
        size = calls_a_block(backend, call_ns)
        blocks = [backend.block(call, size, issue_ns=issue_ns) for _ in range(WINDOW_BLOCKS)]
        calls += size * WINDOW_BLOCKS
        call_ns = max(float(np.median([b.device_ns for b in blocks])) / size, 1.0)
        issue_ns = float(np.median([b.issue_ns for b in blocks])) / size
        windows.append(call_ns)
        enough = perf_counter() - begin >= LEAST_WARMUP_S
        if enough and len(windows) > 1 and _close(windows[-2], windows[-1]):
            return Warm(call_ns, issue_ns, calls, perf_counter() - begin, True)
    return Warm(call_ns, issue_ns, calls, perf_counter() - begin, False)


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= STEADY_WITHIN * max(a, b)


def calls_a_block(backend: Backend, call_ns: float) -> int:
    """As many calls as make a block a thousand times the clock's resolution."""
    wanted = RESOLUTIONS_A_BLOCK * backend.resolution_ns / call_ns
    return int(min(max(1.0, np.ceil(wanted)), MOST_CALLS_A_BLOCK))


def sample_modes(
    backend: Backend, call: Call, warm: Warm, modes: Sequence[str], rule: StoppingRule
) -> dict[str, Samples]:
    """Measure the modes in turn, a few samples at a time, until the rule is content with each.

    Taking turns spreads every mode over the whole time, so that slow changes of the machine are
    seen by each of them and do not look like a difference between them.
    """
    taken = {mode: _Taken(_calls_of(mode, backend, warm)) for mode in modes}
    begin = perf_counter()
    next_look = rule.least_samples
    with backend.quiet():
        while True:
            for mode, so_far in taken.items():
                _take(backend, call, warm, mode, so_far)
            seconds = perf_counter() - begin
            count = min(len(t.blocks) for t in taken.values())
            if rule.out_of_budget(count, seconds, len(modes)):
                break
            if count >= next_look and seconds >= rule.least_seconds:
                if all(rule.reached(t.call_ns()) for t in taken.values()):
                    break
                next_look = 2 * count
    return {mode: _samples(mode, t, rule, backend.resolution_ns) for mode, t in taken.items()}


def sample_sustained(backend: Backend, call: Call, warm: Warm, rule: StoppingRule) -> Samples:
    """Calls back to back without a pause; what is left of the speed when the device is hot and at
    its power limit. The first half of the time is for getting there and is dropped."""
    taken = _Taken(calls_a_block(backend, warm.call_ns))
    with backend.quiet():
        for block in backend.sustained(call, taken.calls, seconds=rule.sustained_seconds):
            taken.blocks.append(block)
            taken.clocks.append(backend.clock_state())
    taken.drop_before(0.5)
    return _samples("sustained", taken, rule, backend.resolution_ns)


@dataclass
class _Taken:
    """What one mode has so far."""

    calls: int
    blocks: list[Block] = field(default_factory=list)
    clocks: list[ClockState | None] = field(default_factory=list)

    def call_ns(self) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        return np.array([b.device_ns for b in self.blocks], np.float64) / self.calls

    def drop_before(self, share: float) -> None:
        """Drop the blocks of the first part of the time, and keep at least the last one."""
        ends = np.cumsum([b.device_ns for b in self.blocks])
        first = min(int(np.searchsorted(ends, share * ends[-1])), len(ends) - 1)
        del self.blocks[:first], self.clocks[:first]


def _calls_of(mode: str, backend: Backend, warm: Warm) -> int:
    return calls_a_block(backend, warm.call_ns) if mode == "batched" else 1


def _take(backend: Backend, call: Call, warm: Warm, mode: str, so_far: _Taken) -> None:
    """A turn of one mode: ten samples, or one of a slow function."""
    several = 1 if so_far.calls * warm.issue_ns >= SLOW_SAMPLE_NS else ROUND
    if mode == "batched":
        backend.finish(call())  # the cache is as the function leaves it, not flushed
        for _ in range(several):
            so_far.blocks.append(backend.block(call, so_far.calls, issue_ns=warm.issue_ns))
            so_far.clocks.append(backend.clock_state())
        return
    so_far.blocks += backend.isolated(call, several, cold=mode == "cold", issue_ns=warm.issue_ns)
    so_far.clocks += [backend.clock_state()] * several


def _samples(mode: str, taken: _Taken, rule: StoppingRule, resolution_ns: float) -> Samples:
    known = [c for c in taken.clocks if c is not None]
    speeds = [c.sm_mhz for c in known if c.sm_mhz is not None]
    full = [b.queue_full for b in taken.blocks if b.queue_full is not None]
    return Samples(
        mode=mode,
        calls=taken.calls,
        call_ns=taken.call_ns(),
        issue_ns=float(np.median([b.issue_ns for b in taken.blocks])) / taken.calls,
        queue_full_ratio=float(np.mean(full)) if full else None,
        disturbed_ratio=_disturbed(known, max(speeds, default=0.0)) if known else None,
        sm_clock_mhz=float(np.median(speeds)) if speeds else None,
        precise=rule.reached(taken.call_ns()),
        clock_step_ns=resolution_ns / taken.calls if taken.calls > 1 else 0.0,
    )


def _disturbed(clocks: list[ClockState], highest_mhz: float) -> float:
    bad = [
        bool((c.reasons or 0) & reasons.SLOWED)
        or (c.sm_mhz is not None and c.sm_mhz < SLOW_CLOCK * highest_mhz)
        for c in clocks
    ]
    return sum(bad) / len(bad)
