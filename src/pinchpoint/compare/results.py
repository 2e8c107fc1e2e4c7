"""Two benchmark results: what differs, and why that alone proves little.

Results of two sessions were not measured side by side. What varies between sessions (day, node,
driver, clocks) is in the difference and not in either spread, so a significance test of stored
results calls a fifth of unchanged pairs different. So: ``differs`` only from 10 % on and beyond
all runs of the other side, ``same`` only when the ranges overlap, else ``cannot tell``.
"""

from collections.abc import Mapping
from math import exp, log

import msgspec

from pinchpoint.bench.baselines.check import FAILS_ALONE
from pinchpoint.bench.measures import MEASURES, Measure
from pinchpoint.bench.result import AcrossRuns, BenchResult, across_runs
from pinchpoint.errors import NotComparable
from pinchpoint.monitor.environment import differences, refusals

SCHEMA = "bench.compare/1"


class ResultChange(msgspec.Struct, frozen=True, kw_only=True):
    """One measure; the ratio is of the worsening: positive means that B is worse."""

    name: str
    label: str
    unit: str
    better: str
    a_median: float
    b_median: float
    change_ratio: float
    a_range: tuple[float, float]
    b_range: tuple[float, float]
    a_runs: int
    b_runs: int
    verdict: str  # worse, better, same, cannot tell


class ResultComparison(msgspec.Struct, frozen=True, kw_only=True):
    """All measures that both results give."""

    schema: str = SCHEMA
    a: str
    b: str
    changes: tuple[ResultChange, ...]
    warnings: tuple[str, ...]
    forced: bool = False


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
        changes=tuple(_change(left[name], right[name]) for name in left if name in right),
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


def _change(a: AcrossRuns, b: AcrossRuns) -> ResultChange:
    measure = a.measure
    sign = 1 if measure.better == "lower" else -1
    ratio = 0.0
    if a.median > 0 and b.median > 0:
        ratio = exp(sign * log(b.median / a.median)) - 1
    ranges = [(min(x.values), max(x.values)) for x in (a, b)]
    return ResultChange(
        name=measure.name,
        label=measure.label,
        unit=measure.unit,
        better=measure.better,
        a_median=a.median,
        b_median=b.median,
        change_ratio=ratio,
        a_range=ranges[0],
        b_range=ranges[1],
        a_runs=len(a.values),
        b_runs=len(b.values),
        verdict=_verdict(ratio, ranges[0], ranges[1]),
    )


def _verdict(ratio: float, a: tuple[float, float], b: tuple[float, float]) -> str:
    apart = a[1] < b[0] or b[1] < a[0]
    if not apart:
        return "same"
    if abs(ratio) < FAILS_ALONE:
        return "cannot tell"
    return "worse" if ratio > 0 else "better"
