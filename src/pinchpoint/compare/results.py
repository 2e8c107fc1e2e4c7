"""Two benchmark results: what differs, and why that alone proves little.

Results of two sessions were not measured side by side. What varies between sessions (day, node,
driver, clocks) is in the difference and not in either spread, so a significance test of stored
results calls a fifth of unchanged pairs different. So: ``worse`` or ``better`` only from 10 % on
and beyond all runs of the other side, ``same`` only when the ranges overlap and the middle differs
by less, else ``cannot tell``.
"""

from collections.abc import Mapping, Sequence
from math import exp, log

import msgspec
import numpy as np

from pinchpoint.bench.baselines.screen import FAILS_ALONE
from pinchpoint.bench.measures import MEASURES, Measure
from pinchpoint.bench.metrics import RunMetrics
from pinchpoint.bench.result import AcrossRuns, BenchResult, across_runs
from pinchpoint.compare.gates import Compared, Gated, judged
from pinchpoint.errors import NotComparable
from pinchpoint.monitor.environment import differences, refusals

SCHEMA = "bench.compare/1"


Bounds = tuple[float | None, float | None]


class ResultChange(msgspec.Struct, frozen=True, kw_only=True):
    """One measure; the ratio is of the worsening: positive means that B is worse."""

    name: str
    label: str
    unit: str
    better: str
    a_median: float
    b_median: float
    change_ratio: float
    a_range: Bounds  # of the runs, with the interval of a percentile within each; null: open
    b_range: Bounds
    a_runs: int
    b_runs: int
    verdict: str  # worse, better, same, cannot tell
    point: str = ""  # which load, where several were compared
    how: str = ""  # what an interval of load tests rests on
    partial: bool = False  # B failed more requests than A: it is of those that were answered

    @property
    def why_unknown(self) -> str:
        """Why ``change_ratio`` tells nothing; empty where it does."""
        if (self.a_median > 0) != (self.b_median > 0):
            return "one of the two is 0"
        answered_alone = self.partial and self.verdict != "worse"
        return "of the requests that B answered alone" if answered_alone else ""


class ResultComparison(msgspec.Struct, frozen=True, kw_only=True):
    """All measures that both results give."""

    schema: str = SCHEMA
    a: str
    b: str
    changes: tuple[ResultChange, ...]
    warnings: tuple[str, ...]
    forced: bool = False
    gates: tuple[Gated, ...] = ()


def compare_results(
    a: BenchResult,
    b: BenchResult,
    *,
    measures: Mapping[str, Measure] = MEASURES,
    force: bool = False,
) -> ResultComparison:
    """Compare two sessions; NotComparable if they measured different things (unless ``force``)."""
    problems = _different_benchmarks(a, b)
    found = differences(a.environment, b.environment, stored=True)
    problems += [d.in_words() for d in refusals(found)]
    if problems and not force:
        raise NotComparable(
            f"not comparable: {'; '.join(problems[:3])}",
            hint="measure both side by side with bench ab, or --force",
        )
    left, right = across_runs(a.runs, measures), across_runs(b.runs, measures)
    notes = problems + [d.in_words() for d in found if d.action == "warn"]
    return ResultComparison(
        a=f"{a.bench_id}, {a.created_utc[:16]}",
        b=f"{b.bench_id}, {b.created_utc[:16]}",
        changes=tuple(
            _change(left[name], right[name], (a.runs, b.runs)) for name in left if name in right
        ),
        warnings=(
            *notes,
            "measured in different sessions: what varies between sessions is in the difference; "
            "bench ab measures side by side",
        ),
        forced=force,
    )


def _different_benchmarks(a: BenchResult, b: BenchResult) -> list[str]:
    found = []
    if a.bench_id != b.bench_id:
        found.append(f"benchmark {a.bench_id} in A, {b.bench_id} in B")
    if a.kind != b.kind:
        found.append(f"kind {a.kind} in A, {b.kind} in B")
    for name in sorted(set(a.params) | set(b.params)):
        if a.params.get(name) != b.params.get(name):
            found.append(f"{name} {a.params.get(name)} in A, {b.params.get(name)} in B")
    return found


def _change(a: AcrossRuns, b: AcrossRuns, runs: Sequence[Sequence[RunMetrics]]) -> ResultChange:
    bounds = [_bounds(across, own) for across, own in zip((a, b), runs, strict=True)]
    return changed(a.measure, (a.values, b.values), (bounds[0], bounds[1]))


def _bounds(across: AcrossRuns, runs: Sequence[RunMetrics]) -> Bounds:
    """From the least to the most of the runs, with the interval of a percentile within each."""
    ends = [across.measure.interval(run) for run in runs if run.valid]
    known = [v for pair in ends for v in pair if v is not None]
    values = (*across.values, *known)
    one_sided = len(across.values) == 1 and len(known) == 1  # at least, or at most
    return min(values), None if one_sided else max(values)


def changed(
    measure: Measure,
    values: tuple[Sequence[float], Sequence[float]],
    bounds: tuple[Bounds, Bounds],
    *,
    point: str = "",
    how: str = "",
    partial: bool = False,
) -> ResultChange:
    """One measure of both sides."""
    a, b = (float(np.median(side)) for side in values)
    sign = 1 if measure.better == "lower" else -1
    ratio = exp(sign * log(b / a)) - 1 if a > 0 and b > 0 else 0.0
    verdict = _verdict(ratio, *bounds)
    return ResultChange(
        name=measure.name,
        label=measure.label,
        unit=measure.unit,
        better=measure.better,
        a_median=a,
        b_median=b,
        change_ratio=ratio,
        a_range=bounds[0],
        b_range=bounds[1],
        a_runs=len(values[0]),
        b_runs=len(values[1]),
        verdict="cannot tell" if partial and verdict != "worse" else verdict,
        point=point,
        how=how,
        partial=partial,
    )


def _verdict(ratio: float, a: Bounds, b: Bounds) -> str:
    if not (_below(a, b) or _below(b, a)):
        whole = None not in (*a, *b)
        return "same" if whole and abs(ratio) < FAILS_ALONE else "cannot tell"
    if abs(ratio) < FAILS_ALONE:
        return "cannot tell"
    return "worse" if ratio > 0 else "better"


def _below(low: Bounds, high: Bounds) -> bool:
    return low[1] is not None and high[0] is not None and low[1] < high[0]


def gated(found: ResultComparison, asked: Sequence[str]) -> ResultComparison:
    """The same with the outcome of each gate; UsageError for a measure that it has not."""
    said = [
        Compared(
            name=c.name,
            label=f"{c.label} ({c.point})" if c.point else c.label,
            a=c.a_median,
            change_ratio=None if c.why_unknown else c.change_ratio,
            worse=c.verdict == "worse",
            why_unknown=c.why_unknown,
            better=c.better,
        )
        for c in found.changes
    ]
    measures = MEASURES | {
        c.name: Measure(c.name, c.unit, "lower", c.label, lambda _: None) for c in found.changes
    }
    return msgspec.structs.replace(found, gates=judged(said, asked, measures))
