"""What rules about host work say alike: how often, how long, where, and the longest span."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.host.ancestry import nearest, parents, subtree_sums, within_rows
from pinchpoint.analysis.replay import (
    Change,
    DropDeviceOps,
    DropSyncs,
    RemoveHostTime,
    ScaleHostSpans,
)
from pinchpoint.analysis.replay.least_durations import products
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step, rows_in_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.finding import Evidence, Location
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.intervals import flatten, intersect, subtract
from pinchpoint.trace.names import rows_named

_OVER_LINK = (Category.COPY_D2H, Category.COPY_H2D)  # values there, results back


@dataclass(frozen=True, eq=False)
class HostSpans:
    """Spans of host rows inside the judged steps; none lies within another."""

    rows: Rows  # of host_ops
    count: float  # a step
    ns_per_step: int
    place: Location | None
    evidence: tuple[Evidence, ...]
    longest: str | None  # name of the longest span at that place

    @property
    def where(self) -> str:
        """`` in forward (model.py:41)``, or nothing."""
        text = str(self.place) if self.place else ""
        return f" in {text}" if text else ""


def how_often(trace: Trace, spans: HostSpans) -> str:
    """``3 × a step``, ``every 4 steps``; once in all is no frequency, and is said so."""
    steps, times = max(len(judged_steps(trace)), 1), len(spans.rows)
    if times >= steps:
        return f"{times / steps:.3g} × a step"
    if times > 1:
        return f"every {steps / times:.2g} steps"
    return f"once in the {steps} judged steps (where it is rarer, it costs less)"


def host_spans(trace: Trace, wanted: Mask, what: str) -> HostSpans | None:
    """The outermost wanted rows of ``host_ops`` inside the judged steps; None without any."""
    host = trace.host_ops
    if host is None or not wanted.any():
        return None
    rows = np.flatnonzero(outermost(trace, wanted & _in_judged(trace)))
    if not len(rows):
        return None
    took = host["duration_ns"][rows].astype(np.int64)
    place, here = busiest_place(trace, rows, took)
    longest = int(rows[here[np.argmax(took[here])]])
    total = round(per_step(trace, _together_ns(trace, rows)))
    count = per_step(trace, len(rows))
    name = trace.text(host, "name", longest)
    evidence = (
        Evidence(what, total, "ns per step"),
        Evidence("times", round(count, 2), "per step"),
        Evidence(
            "longest",
            int(host["duration_ns"][longest]),
            "ns",
            int(host["start_ns"][longest]),
            name,
        ),
    )
    return HostSpans(rows, count, total, place, evidence, name)


def _in_judged(trace: Trace) -> Mask:
    """Rows that begin in a judged step. Where no steps are known, and the recording is judged as
    one, also those that had begun before its first operator and went on."""
    host = trace.host_ops
    assert host is not None
    found: Mask = rows_in_steps(trace, host)
    if steps(trace).how == "none" and len(windows := judged_steps(trace)):
        begun, ended = windows.start_ns[0], windows.end_ns[0]
        found = found | ((host["start_ns"] < ended) & (host.end_ns > begun))
    return found


def _together_ns(trace: Trace, rows: Rows) -> int:
    """Time in which any of these rows of ``host_ops`` runs: threads that do it at the same time
    take it once, so that no step loses more than it lasts."""
    host = trace.host_ops
    assert host is not None
    together = flatten(host["start_ns"][rows], host.end_ns[rows])
    if steps(trace).how == "none" and len(windows := judged_steps(trace)):
        return intersect(together, flatten(windows.start_ns, windows.end_ns)).total
    return together.total


def without(trace: Trace, rows: Rows, *, only_on_host: bool = False) -> tuple[Change, ...]:
    """What a step is when these spans do not happen: with what they launched and waited for.

    What they call that launches products of matrices stays, as nothing that people would drop
    contains one. ``only_on_host``: so does all that launches device work but copies over the link.
    """
    host, calls, ops = trace.host_ops, trace.api_calls, trace.device_ops
    assert host is not None
    if calls is None:
        return (ScaleHostSpans(rows, 0.0),)
    inside = inside_of(trace, rows)
    kept = np.zeros(0, np.intp)
    if ops is not None:
        over_link = np.isin(category_of_device_ops(trace), _OVER_LINK)
        stays = ~over_link if only_on_host else products(trace)
        kept = _called_for(trace, rows, ops.filled("host_op", len(host))[stays])
    if len(kept):
        inside &= ~inside_of(trace, kept)
        host_time: Change = RemoveHostTime(*_between(trace, rows, kept))
    else:
        host_time = ScaleHostSpans(rows, 0.0)
    gone = np.flatnonzero(inside[calls.filled("host_op", len(host))])
    changes: tuple[Change, ...] = (host_time, DropSyncs(gone))
    if ops is not None:
        call = ops.filled("api_call", -1)
        changes += (DropDeviceOps(np.flatnonzero(np.isin(call, gone))),)
    return changes


def inside_of(trace: Trace, rows: Rows) -> Mask:
    """Whether each row of ``host_ops`` is one of these or inside; one more element for no row."""
    host = trace.host_ops
    assert host is not None
    return within_rows(parents(host), rows)


def _called_for(trace: Trace, rows: Rows, launchers: NDArray[np.int64]) -> Rows:
    """What these rows call themselves and encloses a launcher, or fetches the next batch."""
    host = trace.host_ops
    assert host is not None
    chain, none = parents(host), len(host)
    busy = (activity(trace)[:none] == GapKind.DATA).astype(np.int64)
    np.add.at(busy, launchers[launchers < none], 1)
    called = np.isin(chain, rows)
    return np.flatnonzero(called & (subtree_sums(chain, busy) > 0))


def _between(trace: Trace, rows: Rows, kept: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and end of the time in these rows that is outside of the kept ones within them."""
    host = trace.host_ops
    assert host is not None
    spans = flatten(host["start_ns"][rows], host.end_ns[rows])
    left = subtract(spans, flatten(host["start_ns"][kept], host.end_ns[kept]))
    return left.start, left.end


def beyond_usual(trace: Trace, rows: Rows, most_ns: NDArray[np.int64]) -> RemoveHostTime:
    """The part of these host rows beyond the median of rows with the same name.

    ``most_ns`` limits what is usual, row by row; 0 means no limit.
    """
    host = trace.host_ops
    assert host is not None
    took, end = host["duration_ns"][rows], host.end_ns[rows]
    usual = _medians(host["name"][rows], took)
    usual = np.where(most_ns > 0, np.minimum(usual, most_ns), usual)
    return RemoveHostTime(end - np.maximum(took - usual, 0), end)


def _medians(group: NDArray[np.int32], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each value the lower median of its group."""
    order = np.lexsort((values, group))
    first = np.flatnonzero(np.append(True, group[order][1:] != group[order][:-1]))
    count = np.diff(np.append(first, len(order)))
    out = np.empty(len(values), np.int64)
    out[order] = np.repeat(values[order][first + (count - 1) // 2], count)
    return out


def outermost(trace: Trace, wanted: Mask) -> Mask:
    """Wanted rows that no other wanted row encloses."""
    host = trace.host_ops
    assert host is not None
    chain = parents(host)
    above = np.append(nearest(chain, wanted), len(host))[chain]
    alone: Mask = wanted & (above == len(host))
    return alone


def named(trace: Trace, test: Callable[[str], bool]) -> Mask:
    """Rows of ``host_ops`` whose name passes."""
    assert trace.host_ops is not None
    return rows_named(trace, trace.host_ops, test)
