"""Two load tests of serving engines: latencies, percentiles and rates, load by load.

What an interval rests on, best first: the requests themselves (order statistics); the standard
deviation, for mean and median; the percentiles that the file has, between which others are taken
on a line. A count of requests that came by chance has a spread of its root.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import sqrt

import numpy as np

from pinchpoint.bench.measures import MEASURES, Better, Measure
from pinchpoint.bench.statistics.intervals import least_count, mean_interval, quantile_bounds
from pinchpoint.compare.results import Bounds, ResultChange, ResultComparison, changed
from pinchpoint.errors import NotComparable
from pinchpoint.frozen import dataclass
from pinchpoint.importers.load_test import Latency, LoadTest

_NORMAL = 1.96  # half width of a 95 % interval in standard errors
# Standard error of a median over that of a mean, sqrt(pi / 2): of normal values; the long tail of
# latencies has a wider standard deviation, hence a wider interval.
_MEDIAN_ERROR = 1.2533
_QUANTILES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_FAILED = 0.01  # more failed than in A: a p99 leaves out as many
_TOKENS_ALIKE = 0.1  # tokens a request: prompts drawn anew differ less, from 100 requests on


@dataclass(frozen=True)
class _Estimate:
    value: float
    low: float | None
    high: float | None
    how: str


@lru_cache(maxsize=1 << 12)  # of one file at a time
def _measure(name: str, unit: str, better: Better, label: str) -> Measure:
    return MEASURES.get(name) or Measure(name, unit, better, label, lambda _: None)


_RATES = {
    label: _measure(name, "1/s", "higher", label)
    for label, name in (
        ("requests/s", "requests_per_s"),
        ("output tokens/s", "output_tokens_per_s"),
        ("tokens/s", "tokens_per_s"),
    )
}


def compare_load_tests(
    a: Sequence[LoadTest], b: Sequence[LoadTest], names: tuple[str, str], *, force: bool = False
) -> ResultComparison:
    """Compare the loads that both sides have; NotComparable if they have none (unless forced)."""
    sides = [_by_load(a), _by_load(b)]
    warnings = []
    if len(sides[0]) == len(sides[1]) == 1:
        problem = _other_load(*(next(iter(side)) for side in sides))
        if problem and not force:
            raise NotComparable(
                f"not comparable: {problem}", hint="measure both under one load, or --force"
            )
        warnings += [problem] if problem else []
        key = next(iter(sides[0]))
        sides[1] = {key: next(iter(sides[1].values()))}
    both = [key for key in sides[0] if key in sides[1]]
    if not both:
        raise NotComparable(
            "not comparable: no load is in both", hint="measure both at the same rates"
        )
    for name, side in zip("AB", sides, strict=True):
        warnings += [f"only in {name}: {_words(key)}" for key in side if key not in both]
    changes: list[ResultChange] = []
    for key in both:
        one, other = sides[0][key], sides[1][key]
        point = _words(key) if len(both) > 1 else ""
        warnings += _differ(one, other, point)
        changes += _changes(one, other, point)
    return ResultComparison(
        a=names[0],
        b=names[1],
        changes=tuple(changes),
        warnings=(*warnings, *_sessions(a, b)),
        forced=force,
    )


Load = tuple[tuple[str, str], ...]


def _by_load(runs: Sequence[LoadTest]) -> dict[Load, list[LoadTest]]:
    found: dict[Load, list[LoadTest]] = {}
    for run in runs:
        found.setdefault(tuple(sorted(run.load.items())), []).append(run)
    return found


def _words(load: Load) -> str:
    return ", ".join(f"{name} {value}" for name, value in load) or "a load without settings"


def _other_load(a: Load, b: Load) -> str:
    one, other = dict(a), dict(b)
    return "; ".join(
        f"{name} {one.get(name, 'not said')} in A, {other.get(name, 'not said')} in B"
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name)
    )


def _differ(a: Sequence[LoadTest], b: Sequence[LoadTest], point: str) -> Iterator[str]:
    """What may be meant, or explain the rest: another model, requests that failed, shorter text."""
    at = f"{point}: " if point else ""
    served = [{k: v for run in side for k, v in run.served.items()} for side in (a, b)]
    for name in sorted({*served[0]} & {*served[1]}):
        if served[0][name] != served[1][name]:
            yield f"{at}{name} {served[0][name]} in A, {served[1][name]} in B"
    if _fails_more(a, b):
        failed = [_share_failed(side) for side in (a, b)]
        yield (
            f"{at}B failed {100 * failed[1]:.3g} % of its requests, A {100 * failed[0]:.3g} %: "
            "latencies are of those that were answered"
        )
    for word, of in (("read", "tokens_in"), ("wrote", "tokens_out")):
        each = [_tokens(side, of) for side in (a, b)]
        if each[0] and each[1] and abs(each[1] / each[0] - 1) > _TOKENS_ALIKE:
            yield f"{at}a request {word} {each[0]:.4g} tokens in A, {each[1]:.4g} in B"


def _fails_more(a: Sequence[LoadTest], b: Sequence[LoadTest]) -> bool:
    return _share_failed(b) > _share_failed(a) + _FAILED


def _share_failed(runs: Sequence[LoadTest]) -> float:
    failed = sum(run.failed or 0 for run in runs)
    return failed / max(failed + sum(run.completed or 0 for run in runs), 1)


def _tokens(runs: Sequence[LoadTest], of: str) -> float | None:
    tokens = [getattr(run, of) for run in runs]
    requests = sum(run.completed or 0 for run in runs)
    return None if None in tokens or not requests else sum(tokens) / requests


def _sessions(a: Sequence[LoadTest], b: Sequence[LoadTest]) -> Iterator[str]:
    yield (
        "measured in different sessions: intervals are of chance within a load, not of what varies "
        "between sessions; a verdict from 10 % on"
    )
    fewest = min((run.completed for run in (*a, *b) if run.completed), default=0)
    if fewest < (needed := least_count(_QUANTILES["p99"])):
        yield f"{fewest or 'an unknown number of'} requests: p99 has both its ends from {needed} on"
    if all(not len(latency.values) for run in (*a, *b) for latency in run.latencies):
        yield (
            "no requests in the files: intervals from sums, and open where those do not reach "
            "(vllm bench serve --save-detailed keeps the requests)"
        )


def _changes(a: Sequence[LoadTest], b: Sequence[LoadTest], point: str) -> Iterator[ResultChange]:
    one, other = ([dict(_estimates(run)) for run in side] for side in (a, b))
    for measure in dict.fromkeys(m for run in one for m in run):
        sides = [[run[measure] for run in side if measure in run] for side in (one, other)]
        if all(sides):
            values = [[e.value for e in side] for side in sides]
            yield changed(
                measure,
                (values[0], values[1]),
                (_bounds(sides[0]), _bounds(sides[1])),
                point=point,
                partial=_fails_more(a, b),
                how=sides[1][0].how if len(sides[0]) == len(sides[1]) == 1 else "between loads",
            )


def _bounds(found: Sequence[_Estimate]) -> Bounds:
    """Of one load its interval; of several from the least to the most, intervals included."""
    if len(found) == 1:
        return found[0].low, found[0].high
    known = [v for e in found for v in (e.value, e.low, e.high) if v is not None]
    return min(known), max(known)


def _estimates(run: LoadTest) -> Iterator[tuple[Measure, _Estimate]]:
    for latency in run.latencies:
        short = f"{latency.name}_median_ms" in MEASURES  # as the measures of bench serve are called
        label = latency.name.upper() if short else latency.label
        for of in ("median", "mean", *(q for q in _QUANTILES if q != "median")):
            if of in latency.said:
                name = f"{latency.name}_{of}_ms"
                yield (
                    _measure(name, "ms", "lower", f"{label}, {of}"),
                    _latency(latency, of, run.completed),
                )
    for label, measure in _RATES.items():
        if label in run.rates:
            value, n = run.rates[label], run.completed
            half = _NORMAL * value / sqrt(n) if n else None
            yield (
                measure,
                (
                    _Estimate(value, None, None, "")
                    if half is None
                    else _Estimate(
                        value, max(value - half, 0.0), value + half, "number of requests"
                    )
                ),
            )


def _latency(latency: Latency, of: str, requests: int | None) -> _Estimate:
    value, values, n = latency.said[of], latency.values, requests
    if len(values):
        ends: Bounds = (None, None)
        ends = mean_interval(values) or ends if of == "mean" else ends
        ends = quantile_bounds(values, _QUANTILES[of]) if of in _QUANTILES else ends
        return _Estimate(value, *ends, "requests")
    deviation = latency.said.get("std")
    if n and deviation is not None and of in ("mean", "median"):
        half = _NORMAL * deviation / sqrt(n) * (_MEDIAN_ERROR if of == "median" else 1)
        return _Estimate(value, max(value - half, 0.0), value + half, "standard deviation")
    if n and of in _QUANTILES:
        return _Estimate(value, *_between(latency.said, _QUANTILES[of], n), "percentiles")
    return _Estimate(value, None, None, "")


def _between(said: Mapping[str, float], q: float, requests: int) -> Bounds:
    """Values of the quantiles that chance may put in place of this one; None beyond those known."""
    known = sorted((quantile, said[of]) for of, quantile in _QUANTILES.items() if of in said)
    half = _NORMAL * sqrt(q * (1 - q) / requests)
    at, values = [k[0] for k in known], [k[1] for k in known]
    low, high = q - half, q + half
    return (
        float(np.interp(low, at, values)) if low >= at[0] else None,
        float(np.interp(high, at, values)) if high <= at[-1] else None,
    )
