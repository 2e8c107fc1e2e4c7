"""Load at one rate after another: where a server saturates (``bench.sweep/1``).

Below its knee a server answers what it is sent, as fast as when it is idle. Beyond it, requests
queue: latency grows with the length of the load, and no percentile of it means anything.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf, sqrt

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
# A rate that looks beyond the knee is sent again, with other arrivals: neighbours on the machine
# and bunches of arrivals only make a server look slower, so that one load of three that it keeps up
# with shows that it can (at load 8 on 2 CPUs a single load said 13.4 of a server that does 30.8).
LOADS = 3
# Of the median answer at the lowest rate: where the load generator waits longer for a CPU (p95), so
# may a server beside it, at every text of an answer, and doubled latency tells nothing of it.
LAG_RATIO = 0.05


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
    below_knee: bool | None = None  # null: the machine was too busy to tell
    why: str = ""
    window_s: float | None = None
    late_ms: float = 0.0  # how late the load generator sent (p95), by its own doing
    lag_ms: float = 0.0  # how long it waited for a CPU (p95)
    loads: int = 1  # sent at this rate; the figures are of the one that went best


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
    # The lowest rate that was beyond in all of its loads; null: none, and the knee may be higher.
    beyond_per_s: float | None = None
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
        window_s=window,
        late_ms=run.counters.get("generator_late_p95_ms") or 0.0,
        lag_ms=run.counters.get("generator_lag_p95_ms") or 0.0,
    )


def swept(
    rates: Sequence[float],
    send: Callable[[float, int], SweepPoint],
    notice: Callable[[str], None],
) -> list[SweepPoint]:
    """A point a rate, lowest first: ``send(rate, i)`` sends the i-th load. Up to ``LOADS`` where it
    looks beyond the knee; it ends where the server falls behind, as every higher rate would only
    queue."""
    points: list[SweepPoint] = []
    sent = 0
    for rate in sorted(rates):
        loads: list[SweepPoint] = []
        while len(loads) < LOADS:
            again = ", again, as it looks beyond the knee" if loads else ""
            notice(f"{rate:g} requests a second{again}")
            loads.append(send(rate, sent))
            sent += 1
            lowest = (*points, *loads)[0]
            if not loads[-1].answered_per_s or not _beyond(loads[-1], lowest):
                break
        points.append(_best(loads, lowest))
        if not points[-1].answered_per_s or _falls_behind(points[-1], lowest):
            break
    return points


def _best(loads: Sequence[SweepPoint], lowest: SweepPoint) -> SweepPoint:
    """Of loads at one rate the one that the server did best with."""

    def rank(one: SweepPoint) -> tuple[bool, float, float]:
        p95 = one.e2e_ms.p95 if one.e2e_ms else None
        kept = one.keeps_up_ratio if one.met_ratio is None else one.met_ratio
        return bool(_beyond(one, lowest)), -(kept or 0.0), p95 or inf

    return msgspec.structs.replace(min(loads, key=rank), loads=len(loads))


def _falls_behind(one: SweepPoint, lowest: SweepPoint) -> bool:
    return (one.keeps_up_ratio or 0.0) < KEEPS_UP_RATIO and not _machine(one, lowest)


def _machine(one: SweepPoint, lowest: SweepPoint) -> str:
    """Why a point beyond the knee may tell of this machine and not of the server; empty if not."""
    waited = f"the load generator itself waited up to {one.lag_ms:.3g} ms for a CPU (p95)"
    if (one.keeps_up_ratio or 0.0) < KEEPS_UP_RATIO:
        longer_s = (one.window_s or 0.0) * (1 - (one.keeps_up_ratio or 0.0))
        # What the last requests were sent late by is the generator's part of the longer load.
        return waited if one.late_ms / 1e3 > longer_s / 2 else ""
    idle = lowest.e2e_ms.median if lowest.e2e_ms else None
    return waited if idle and one.lag_ms > LAG_RATIO * idle else ""


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
                window_s=span_s,
                late_ms=found.late_ms,
            )
        )
    return points


def _met(goodput_per_s: float | None, window_s: float, answered: int) -> float | None:
    """The share of the answered requests that met the objectives."""
    return None if goodput_per_s is None or not answered else goodput_per_s * window_s / answered


def judged(points: Sequence[SweepPoint]) -> tuple[SweepPoint, ...]:
    """Lowest rate first; a point beyond the knee says why, and all above it are beyond, too.

    Where the machine may be why, nothing is said of the point, and the next is judged by itself.
    """
    ordered = sorted(points, key=lambda p: p.rate_per_s)
    out: list[SweepPoint] = []
    for one in ordered:
        why = _beyond(one, ordered[0])
        machine = _machine(one, ordered[0]) if why else ""
        below: bool | None = None if machine else not why
        if any(p.below_knee is False for p in out) and below is not False:
            below, why, machine = False, "a lower rate is beyond the knee", ""
        again = f", in the best of {one.loads} loads" if why and one.loads > 1 else ""
        said = f"{why}{again}" + (f"; {machine}: cannot tell" if machine else "")
        out.append(msgspec.structs.replace(one, below_knee=below, why=said))
    return tuple(out)


def _beyond(one: SweepPoint, lowest: SweepPoint) -> str:
    if one.answered_per_s is None or one.keeps_up_ratio is None:
        return "no request was answered"
    if one.keeps_up_ratio < KEEPS_UP_RATIO:
        return f"it falls behind: {one.answered_per_s:.3g} of {one.offered_per_s:.3g} a second"
    if one.met_ratio is not None:
        met = one.met_ratio
        return "" if met >= MET_RATIO else f"{100 * met:.0f} % of the requests meet the objectives"
    now, idle = (p.e2e_ms.p95 if p.e2e_ms else None for p in (one, lowest))
    if now is not None and idle and now > SLOWED_RATIO * idle:
        return f"p95 is {now / idle:.1f} × that of the lowest rate"
    return ""


def knee(points: Sequence[SweepPoint]) -> float | None:
    """The highest rate below the knee, and no higher than that at which requests came: 37 that are
    drawn for 35 a second may come at 26."""
    tried = [min(p.rate_per_s, p.offered_per_s) for p in points if p.below_knee]
    return max(tried, default=None)


def beyond(points: Sequence[SweepPoint]) -> float | None:
    """The lowest rate that is beyond the knee for certain."""
    return min((p.rate_per_s for p in points if p.below_knee is False), default=None)
