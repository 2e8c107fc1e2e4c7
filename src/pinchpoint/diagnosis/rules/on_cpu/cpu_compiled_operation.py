"""An operation of a program that XLA compiled for the CPU takes many times what its bytes need.

## What it looks for
Operations of a program that XLA compiled for the CPU, with the bytes and FLOPs that its HLO tells.
Named is one of which even the fastest run took six times as long as one core of a slow server would
(three times where the FLOPs are known), and as the operation of the same recording that comes
closest to that: what other programs on the machine slow down, they slow down alike. Where they had
the cores, it takes three runs or more: a single one may have waited all that time. The step would
be 15 % shorter at that rate. Loops, sorts, lookups and calls of libraries have no such limit.

## Why it matters
XLA compiles for the CPU what is written: a mask of all pairs, a copy into another order, a row at a
time. Its loops over such arrays do not use vectors, and a large intermediate does not fit a cache.

## How to fix it
Look at the expression at that line: a sum by index (`.at[i].add`, `segment_sum`) in place of a
comparison with all, operands in the order in which they are read, smaller pieces (`lax.map` with
`batch_size`).

## When to ignore it
Where the operation is a chain of exponentials or the like: these take long for each byte.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.on_cpu import compiled_for_cpu
from pinchpoint.analysis.limits.on_cpu import (
    FAR_RATIO,
    LEAST_BYTES_PER_S,
    LEAST_FLOP_PER_S,
    START_NS,
)
from pinchpoint.analysis.run import lacked_cores
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small, at_most
from pinchpoint.diagnosis.record import Need, Record
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import Table, Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=Record("the .xplane.pb that jax.profiler writes, which holds the compiled programs"),
    residual=True,
)

# What a fusion computes is not counted: an exponential of each element takes a few times as long as
# reading and writing it.
FAR_BY_BYTES_RATIO = 2 * FAR_RATIO
LEAST_GAIN_RATIO = 0.15  # of the step: no other way is known, only much is worth the search
LEAST_JUDGE_RATIO = 0.02  # of the time of all: an operation that shows how fast the machine was
SURE_SHARE = 0.25  # a judgement: what another way takes is not known
FEWEST_RUNS = 3  # where others had the cores: of fewer none may have had one to itself
MOST_TOLD = 2  # the engine drops those that other findings explain
_NO_LIMIT = regex(
    r"while|condition|call|sort|scatter|gather|dynamic|fft|rng|random|infeed|outfeed|all-|reduce-"
    r"window|select-and|cholesky|triangular|callback|topk"
)
_MORE_RUNS = Record(
    "a longer recording, or the same while the machine has nothing else to do", Need.ANOTHER
)
_PLACE = regex(r"(?P<file>[^,\n]+):(?P<line>\d{1,7})(,|$)")


@dataclass(frozen=True)
class _Operation:
    """All runs of one operation in the judged steps."""

    row: int  # of compiled_ops: the longest
    ns_per_step: int
    runs: int
    fastest_ns: int
    limit_ns: float
    counted: bool  # its FLOPs are known

    @property
    def ratio(self) -> float:
        """The fastest run, in limits."""
        return self.fastest_ns / self.limit_ns


def check(trace: Trace) -> Iterator[Found | Small]:
    """Operations far from their limit, most time first."""
    ops, step_ns = trace.compiled_ops, steps(trace).typical_ns
    if ops is None or not compiled_for_cpu(trace) or not len(judged_steps(trace)) or not step_ns:
        return
    found = sorted(_operations(trace, ops), key=lambda one: -one.ns_per_step)
    whole = sum(one.ns_per_step for one in found)
    judges = [one.ratio for one in found if one.ns_per_step >= LEAST_JUDGE_RATIO * whole]
    slowed = max(min(judges, default=1.0), 1.0)
    told = [(one, _finding(trace, ops, one, slowed, step_ns)) for one in found]
    far = [(one, finding) for one, finding in told if isinstance(finding, Found)]
    least = FEWEST_RUNS if lacked_cores(trace) else 1
    yield from at_most(MOST_TOLD, (said for one, said in told if one.runs >= least))
    if far and all(one.runs < least for one, _ in far):
        raise NotChecked(
            f"{trace.text(ops, 'op', far[0][0].row)} takes {duration(far[0][0].ns_per_step)} of the"
            f" step, far more than its bytes need, in {far[0][0].runs} recorded"
            f" run{'s' if far[0][0].runs > 1 else ''}: other programs had the cores meanwhile",
            _MORE_RUNS,
            fits=True,
        )


def _operations(trace: Trace, ops: Table) -> Iterator[_Operation]:
    mine = np.flatnonzero(judged_steps(trace).step_of(ops["start_ns"]) >= 0)
    took = ops["duration_ns"]
    for name in np.unique(ops["op"][mine]).tolist():
        rows = mine[ops["op"][mine] == name]
        longest = int(rows[np.argmax(took[rows])])
        moved, done = (float(ops.filled(what, 0)[longest]) for what in ("bytes", "flops"))
        if _NO_LIMIT.search(trace.names[name].lower()) or moved <= 0:
            continue
        limit_ns = max(moved / LEAST_BYTES_PER_S, done / LEAST_FLOP_PER_S) * 1e9 + START_NS
        ns = round(per_step(trace, int(took[rows].sum())))
        counted = bool(ops.known("flops")[longest])
        yield _Operation(longest, ns, len(rows), int(took[rows].min()), limit_ns, counted)


def _finding(
    trace: Trace, ops: Table, one: _Operation, slowed: float, step_ns: int
) -> Found | Small | None:
    far = FAR_RATIO if one.counted else FAR_BY_BYTES_RATIO
    won_ns = one.ns_per_step * (1 - slowed / one.ratio)
    if one.ratio < far * slowed:
        return None
    if won_ns < LEAST_GAIN_RATIO * step_ns:
        return Small(won_ns / step_ns, LEAST_GAIN_RATIO)
    name, where = (
        trace.text(ops, "op", one.row),
        _PLACE.match(trace.text(ops, "source", one.row) or ""),
    )
    at = Location(where["file"], int(where["line"]), operator=name) if where else None
    moved = int(ops.filled("bytes", 0)[one.row])
    return Found(
        summary=(
            f"{name} takes {duration(one.ns_per_step)} a step{f' at {at.short}' if at else ''},"
            f" {duration(one.fastest_ns)} in its fastest run, where one core of a slow server would"
            f" take {duration(round(one.limit_ns))} for its {moved / 1e6:,.0f} MB"
        ),
        evidence=(
            Evidence("time", one.ns_per_step, "ns per step"),
            Evidence("fastest run", one.fastest_ns, "ns"),
            Evidence("limit of a run on a slow core", round(one.limit_ns), "ns"),
            Evidence("read and written in a run", moved, "bytes"),
            Evidence("what runs closest to its limit takes", round(slowed, 2), "ratio"),
        ),
        cost_ns_per_step=one.ns_per_step,
        saving_ns_per_step=(round(SURE_SHARE * won_ns), round(min(won_ns, step_ns))),
        location=at,
        fix="Look for another way to the same result at that line: by index in place of a"
        " comparison with all, operands in the order in which they are read, smaller pieces",
        confidence="low",
    )
