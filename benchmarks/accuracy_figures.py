"""What judged recordings come to: shares of right answers, errors, and what ranges hold."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from accuracy_rows import Row
from held_out import Predicted


@dataclass(frozen=True)
class Ranges:
    """Whether stated ranges hold what was measured, and how wide they are."""

    count: int
    holding: int  # ranges with the measured time in them
    median_width: float | None  # between the ends, as a share of the predicted time
    p90_width: float | None


@dataclass(frozen=True)
class Figures:
    """What the rows come to; errors are ratios, and None where no row can tell."""

    slow: int  # recordings with a planted cause of time that matters
    first_right: float  # a parent counts half
    in_three_right: float
    two: int  # of them with two causes
    both_right: int
    healthy: int
    false_alarms: int
    fixed: int
    still_named: int
    unprofiled_median: float | None
    unprofiled_p90: float | None
    numbers: int  # of these, steps that are said as a number and not only as a range
    numbers_median: float | None
    numbers_p90: float | None
    only_ranges: Ranges  # the others
    gain_median: float | None
    gain_p90: float | None
    unprofiled_ranges: Ranges
    gain_ranges: Ranges
    crashed: int
    confidently_wrong: int
    below_bound: int


def figures(rows: list[Row]) -> Figures:
    """Counts and errors over all rows."""
    slow = [r for r in rows if r.variant == "slow" and r.material and r.time_case]
    two = [r for r in slow if len(r.truth) > 1]
    healthy = [r for r in rows if r.variant == "healthy"]
    fixed = [r for r in rows if r.variant in ("fixed", "without")]
    planted = {r.case: r.truth for r in rows if r.variant == "slow"}
    stable = [r for r in rows if r.stable and r.corrected_error is not None]
    corrected = [r.corrected_error or 0.0 for r in stable]
    numbers = [r.corrected_error or 0.0 for r in stable if not r.only_a_range]
    said = list(gains(rows))
    errors = [g.error for g in said]
    return Figures(
        slow=len(slow),
        first_right=sum(r.top1 for r in slow),
        in_three_right=sum(r.top3 for r in slow),
        two=len(two),
        both_right=sum(set(r.truth) <= set(r.found[:3]) for r in two),
        healthy=len(healthy),
        false_alarms=sum(bool(r.found) for r in healthy),
        fixed=len(fixed),
        still_named=sum(bool(set(planted.get(r.case, ())) & set(r.found)) for r in fixed),
        unprofiled_median=_quantile(corrected, 0.5),
        unprofiled_p90=_quantile(corrected, 0.9),
        numbers=len(numbers),
        numbers_median=_quantile(numbers, 0.5),
        numbers_p90=_quantile(numbers, 0.9),
        only_ranges=covered(list(corrections(r for r in stable if r.only_a_range))),
        gain_median=_quantile(errors, 0.5),
        gain_p90=_quantile(errors, 0.9),
        unprofiled_ranges=covered(list(corrections(rows))),
        gain_ranges=covered(said),
        crashed=sum(len(r.crashed) for r in rows),
        confidently_wrong=sum(r.confidently_wrong for r in rows),
        below_bound=sum(r.below_bound for r in rows),
    )


def covered(said: Sequence[Predicted]) -> Ranges:
    """How many ranges hold the measured time, and how wide they are."""
    widths = [p.width for p in said if p.predicted_ns]
    return Ranges(
        count=len(said),
        holding=sum(p.holds for p in said),
        median_width=_quantile(widths, 0.5),
        p90_width=_quantile(widths, 0.9),
    )


def summary(rows: list[Row]) -> list[tuple[str, str]]:
    """The table of the document: measure and value."""
    f = figures(rows)
    return [
        ("first finding right", _share(f.first_right, f.slow)),
        ("right cause among the first three", _share(f.in_three_right, f.slow)),
        ("both of two causes among the first three", _share(f.both_right, f.two)),
        ("healthy runs with a finding", f"{f.false_alarms} of {f.healthy}"),
        ("fixed runs that still name the planted cause", f"{f.still_named} of {f.fixed}"),
        ("step without the profiler, median error", percent(f.unprofiled_median)),
        ("step without the profiler, 90th percentile", percent(f.unprofiled_p90)),
        (
            f"the same where it is said as a number ({f.numbers}), median and 90th percentile",
            f"{percent(f.numbers_median)}, {percent(f.numbers_p90)}",
        ),
        ("measured step in it where only a range is said", held(f.only_ranges)),
        ("step after the fix, median error", percent(f.gain_median)),
        ("step after the fix, 90th percentile", percent(f.gain_p90)),
        ("measured step without the profiler in its range", held(f.unprofiled_ranges)),
        ("measured step after the fix in its range", held(f.gain_ranges)),
        ("a first finding that is wrong, with high confidence", str(f.confidently_wrong)),
        ("predictions below the least that the step can be", str(f.below_bound)),
        ("rules that crashed", str(f.crashed)),
    ]


def corrections(rows: Iterable[Row]) -> Iterator[Predicted]:
    """The step without the profiler, where it could be said."""
    for r in rows:
        if r.corrected_ns and r.corrected_range_ns:
            yield Predicted(
                r.name, r.case, r.corrected_ns, r.corrected_range_ns, r.unprofiled_ns, r.made
            )


def gains(rows: Iterable[Row]) -> Iterator[Predicted]:
    """The predicted step after the fix, where the right cause was found first."""
    for r in rows:
        if r.variant != "slow" or r.after_fix_ns is None or len(r.truth) > 1 or r.top1 < 1:
            continue
        predicted = r.predicted_ns[0] if r.predicted_ns else None
        between = r.predicted_range_ns[0] if r.predicted_ns else None
        if predicted is not None and between and r.found[0] in r.truth and r.time_case:
            first = r.first
            yield Predicted(
                r.case,
                r.case,
                predicted,
                between,
                r.after_fix_ns,
                first.made if first else None,
                first.bound_ns if first else None,
                first.base_ns if first else None,
            )


def _share(hits: float, total: int) -> str:
    return f"{hits:g} of {total} ({hits / total:.0%})" if total else "no rows"


def held(ranges: Ranges) -> str:
    """How many ranges hold the measured time, and how wide they are, in words."""
    if not ranges.count:
        return "no rows"
    return (
        f"{ranges.holding} of {ranges.count} ({ranges.holding / ranges.count:.0%}); width"
        f" {percent(ranges.median_width)} of the step (median), {percent(ranges.p90_width)} (p90)"
    )


def percent(value: float | None) -> str:
    """A share, or that there is none."""
    return "no rows" if value is None else f"{value:.1%}"


def _quantile(values: list[float], q: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(int(q * len(ordered)), len(ordered) - 1)]


# ------------------------------------------------------------------------------------------------
# One program at a time.


@dataclass(frozen=True)
class Family:
    """The recordings of one program: counts, and errors as ratios, None where none can tell."""

    name: str
    recordings: int
    slow: int
    first_right: float
    in_three_right: float
    confidently_wrong: int
    alarms: int  # a healthy program with a finding, a fixed one that is still blamed
    unprofiled_error: float | None  # median over all its recordings
    gain_error: float | None
    unprofiled_ranges: Ranges
    gain_ranges: Ranges
    below_bound: int


def families(rows: Sequence[Row]) -> list[Family]:
    """All programs, by name."""
    return [
        _family(name, [r for r in rows if r.case == name])
        for name in sorted({r.case for r in rows})
    ]


def _family(name: str, rows: Sequence[Row]) -> Family:
    f = figures(list(rows))
    errors = [r.corrected_error for r in rows if r.corrected_error is not None]
    return Family(
        name=name,
        recordings=len(rows),
        slow=f.slow,
        first_right=f.first_right,
        in_three_right=f.in_three_right,
        confidently_wrong=f.confidently_wrong,
        alarms=f.false_alarms + f.still_named,
        unprofiled_error=_quantile(errors, 0.5),
        gain_error=f.gain_median,
        unprofiled_ranges=f.unprofiled_ranges,
        gain_ranges=f.gain_ranges,
        below_bound=f.below_bound,
    )
