"""Warm-up and sampling, the same for every backend."""

from dataclasses import dataclass
from time import perf_counter, perf_counter_ns

import numpy as np

from pinchpoint.bench.micro.backends.base import Backend, Block, Call, ClockState
from pinchpoint.bench.micro.stopping import StoppingRule
from pinchpoint.bench.micro.timing import Samples
from pinchpoint.monitor import reasons

LEAST_WARMUP_S = 0.1  # clocks ramp over tens of milliseconds
MOST_WARMUP_S = 5.0
STEADY_WITHIN = 0.03  # two windows in a row this close
WINDOW_BLOCKS = 5
RESOLUTIONS_A_BLOCK = 1000  # a block is this many resolutions long, so 0.1 % of it
MOST_CALLS_A_BLOCK = 500  # under the depth of the launch queue (about 1000) for one-kernel calls
SLOW_CLOCK = 0.9  # of the highest clock seen; below it a sample counts as disturbed
ROUND = 10  # samples between looks at the stopping rule
HELD_DOWN = (
    reasons.HARDWARE_SLOWDOWN
    | reasons.HARDWARE_THERMAL
    | reasons.SOFTWARE_THERMAL
    | reasons.POWER_BRAKE
)


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


def sample(backend: Backend, call: Call, warm: Warm, mode: str, rule: StoppingRule) -> Samples:
    """Measure one mode until the rule is content."""
    calls = calls_a_block(backend, warm.call_ns) if mode == "batched" else 1
    blocks: list[Block] = []
    clocks: list[ClockState | None] = []
    begin = perf_counter()
    precise = False
    with backend.quiet():
        while not precise:
            for _ in range(ROUND if mode == "batched" else 1):
                blocks += _blocks(backend, call, calls, mode, warm.issue_ns)
                clocks += [backend.clock_state()] * (len(blocks) - len(clocks))
                if rule.out_of_budget(len(blocks), perf_counter() - begin):
                    break
            precise = rule.reached(_call_ns(blocks, calls))
            if rule.out_of_budget(len(blocks), perf_counter() - begin):
                break
    return _samples(mode, calls, blocks, clocks, precise)


def _blocks(backend: Backend, call: Call, calls: int, mode: str, issue_ns: float) -> list[Block]:
    if mode == "batched":
        return [backend.block(call, calls, issue_ns=issue_ns)]
    return backend.isolated(call, _at_once(issue_ns), cold=mode == "cold", issue_ns=issue_ns)


def _at_once(issue_ns: float) -> int:
    """Single calls between looks at the time: fewer of slow ones."""
    return 16 if issue_ns < 1e6 else 1


def _call_ns(blocks: list[Block], calls: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.array([b.device_ns for b in blocks], np.float64) / calls


def _samples(
    mode: str, calls: int, blocks: list[Block], clocks: list[ClockState | None], precise: bool
) -> Samples:
    known = [c for c in clocks if c is not None]
    speeds = [c.sm_mhz for c in known if c.sm_mhz is not None]
    full = [b.queue_full for b in blocks if b.queue_full is not None]
    return Samples(
        mode=mode,
        calls=calls,
        call_ns=_call_ns(blocks, calls),
        issue_ns=float(np.median([b.issue_ns for b in blocks])) / calls,
        queue_full_ratio=float(np.mean(full)) if full else None,
        disturbed_ratio=_disturbed(known, max(speeds, default=0.0)) if known else None,
        sm_clock_mhz=float(np.median(speeds)) if speeds else None,
        precise=precise,
    )


def _disturbed(clocks: list[ClockState], highest_mhz: float) -> float:
    bad = [
        bool((c.reasons or 0) & HELD_DOWN)
        or (c.sm_mhz is not None and c.sm_mhz < SLOW_CLOCK * highest_mhz)
        for c in clocks
    ]
    return sum(bad) / len(bad)
