"""Load at one rate after another: where a server saturates (``bench.sweep/1``).

Below its knee a server answers what it is sent, as fast as when it is idle. Beyond it, requests
queue: latency grows with the length of the load, and no percentile of it means anything.
"""

from collections.abc import Mapping, Sequence
from math import sqrt

import msgspec

from pinchpoint.bench.metrics import RunMetrics, Summary
from pinchpoint.bench.serve.load import Load, Request, arrivals_s
from pinchpoint.bench.serve.run import served

SCHEMA = "bench.sweep/1"
# Of the offered rate. A load of n arrivals takes about sqrt(n) / n more or less than it should
# by chance, and its last answers come after its last arrival; that is taken out before.
KEEPS_UP_RATIO = 0.95
MET_RATIO = 0.9  # of the answered requests: the objectives are met, but for rare ones
SLOWED_RATIO = 2.0  # p95 against the lowest rate: where no objective says how slow is too slow


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One rate."""

    offered_per_s: float  # of the arrivals as drawn, not of the rate that was asked for
    rate_per_s: float  # that was asked for
    answered_per_s: float | None  # requests over the whole load
    keeps_up_ratio: float | None  # 1: the load took no longer than its arrivals and one answer
    goodput_per_s: float | None = None  # null: no objective was given
    met_ratio: float | None = None  # of the answered requests
    failed: int = 0
    ttft_ms: Summary | None = None
    tpot_ms: Summary | None = None
    itl_ms: Summary | None = None
    e2e_ms: Summary | None = None
    below_knee: bool | None = None
    why: str = ""


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """All rates, lowest first."""

    schema: str = SCHEMA
    session_id: str
    bench_id: str
    model: str
    objectives_ms: dict[str, float]
    points: tuple[SweepPoint, ...]
    ramp: bool = False  # the points are parts of one load whose rate rose
    knee_per_s: float | None  # highest rate below the knee; null: even the lowest is beyond
    saturates: bool  # a rate beyond the knee was tried; else the knee is higher
    warnings: tuple[str, ...] = ()


def point(run: RunMetrics, load: Load) -> SweepPoint:
    """One load as a point of the curve."""
    latency = run.latency_ms or {}
    e2e = latency.get("e2e")
    span = arrivals_s(load)[-1] if load.requests > 1 else 0.0
    window = run.throughput.window_s if run.throughput else None
    usual = (e2e.median or 0.0) / 1e3 if e2e else 0.0
    keeps = None if not window else min((span + usual) / window, 1.0)
    answered = run.throughput.value if run.throughput else None
    met = None
    if run.goodput_req_per_s is not None and answered:
        met = run.goodput_req_per_s / answered
    return SweepPoint(
        offered_per_s=(load.requests - 1) / span if span else load.rate_per_s or 0.0,
        rate_per_s=load.rate_per_s or 0.0,
        answered_per_s=answered,
        keeps_up_ratio=keeps,
        goodput_per_s=run.goodput_req_per_s,
        met_ratio=met,
        failed=run.requests_failed or 0,
        ttft_ms=latency.get("ttft"),
        tpot_ms=latency.get("tpot"),
        itl_ms=latency.get("itl"),
        e2e_ms=e2e,
    )


RAMP_PARTS = 8  # of a load: each has an eighth of the requests, at about one rate


def ramp_points(
    requests: Sequence[Request], load: Load, objectives_ms: Mapping[str, float]
) -> list[SweepPoint]:
    """The parts of a load whose rate rises, each at the rate of its middle.

    A server falls behind where more requests come in than answers go out; of n arrivals sqrt(n) are
    chance.
    """
    ordered = sorted(requests, key=lambda r: r.meant_ns)
    ends = sorted(r.answer.end_ns for r in ordered if r.answer.error is None)
    first, last = load.rate_per_s or 0.0, load.rate_end_per_s or 0.0
    size = len(ordered) // RAMP_PARTS
    points = []
    for part in range(RAMP_PARTS):
        chunk = ordered[part * size : (part + 1) * size]
        begin_ns, end_ns = chunk[0].meant_ns, chunk[-1].meant_ns
        span_s = max((end_ns - begin_ns) / 1e9, 1e-9)
        out = sum(begin_ns < end <= end_ns for end in ends)
        found = served(chunk, objectives_ms)
        rate = first + (last - first) * (part + 0.5) / RAMP_PARTS
        met = _met(found.goodput_req_per_s, found.window_s, found.ok)
        answered = (size - 1) / span_s if out + sqrt(size) >= size - 1 else out / span_s
        points.append(
            SweepPoint(
                offered_per_s=(size - 1) / span_s,
                rate_per_s=rate,
                answered_per_s=answered,
                keeps_up_ratio=answered * span_s / (size - 1),
                goodput_per_s=None if met is None else met * answered,
                met_ratio=met,
                failed=found.failed,
                ttft_ms=found.latency_ms.get("ttft"),
                tpot_ms=found.latency_ms.get("tpot"),
                itl_ms=found.latency_ms.get("itl"),
                e2e_ms=found.latency_ms.get("e2e"),
            )
        )
    return points


def _met(goodput_per_s: float | None, window_s: float, answered: int) -> float | None:
    """The share of the answered requests that met the objectives."""
    return None if goodput_per_s is None or not answered else goodput_per_s * window_s / answered


def judged(points: Sequence[SweepPoint]) -> tuple[SweepPoint, ...]:
    """Lowest rate first; a point beyond the knee says why, and all above it are beyond, too."""
    ordered = sorted(points, key=lambda p: p.rate_per_s)
    out: list[SweepPoint] = []
    for one in ordered:
        why = _beyond(one, ordered[0])
        if not why and out and out[-1].below_knee is False:
            why = "a lower rate is beyond the knee"
        out.append(msgspec.structs.replace(one, below_knee=not why, why=why))
    return tuple(out)


def _beyond(one: SweepPoint, lowest: SweepPoint) -> str:
    if one.answered_per_s is None or one.keeps_up_ratio is None:
        return "no request was answered"
    if one.keeps_up_ratio < KEEPS_UP_RATIO:
        return f"it falls behind: {one.answered_per_s:.3g} of {one.offered_per_s:.3g} a second"
    if one.met_ratio is not None:
        met = one.met_ratio
        return "" if met >= MET_RATIO else f"{met:.0%} of the requests meet the objectives"
    now, idle = (p.e2e_ms.p95 if p.e2e_ms else None for p in (one, lowest))
    if now is not None and idle and now > SLOWED_RATIO * idle:
        return f"p95 is {now / idle:.1f} × that of the lowest rate"
    return ""


def knee(points: Sequence[SweepPoint]) -> float | None:
    """The highest rate below the knee, and no higher than that at which requests came: 37 that are
    drawn for 35 a second may come at 26."""
    tried = [min(p.rate_per_s, p.offered_per_s) for p in points if p.below_knee]
    return max(tried, default=None)
