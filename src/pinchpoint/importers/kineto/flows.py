"""Edges: forward to backward, event to wait, synchronisation as the device sees it."""

import numpy as np

from pinchpoint.importers.kineto.columns import known, known_32
from pinchpoint.importers.kineto.fields import ABSENT, NULL, PLACE, Lane
from pinchpoint.importers.kineto.host import Sources
from pinchpoint.importers.kineto.order import time_order
from pinchpoint.trace import FlowKind, Table, table
from pinchpoint.trace.arrays import Array

_BEGIN, _END = ord("s"), ord("f")


def flow_table(sources: Sources) -> Table:
    """All edges that are not launches."""
    parts = [_arrows(sources), _synchronisations(sources)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = time_order(columns["start_ns"])
    if order is not None:
        columns = {name: values[order] for name, values in columns.items()}
    missing = {}
    for name in ("from_correlation", "to_stream"):
        columns[name], missing[name] = known(columns[name])
    columns["device"], missing["device"] = known_32(columns["device"])
    for name in ("from_thread", "to_thread"):
        missing[name] = columns[name] == ABSENT
    return table("flows", columns, missing)


def _arrows(sources: Sources) -> dict[str, Array]:
    columns, interned = sources.columns, sources.interned
    spans = sources.clock.spans(columns, Lane.FLOW, timed_only=True)
    thread = spans.of(sources.threads.positions(columns.take(Lane.FLOW, PLACE)))
    phase = spans.of(columns.take(Lane.FLOW, "phase"))
    flow = spans.of(columns.take(Lane.FLOW, "flow"))
    category = spans.of(columns.take(Lane.FLOW, "category"))
    columns.take(Lane.FLOW, "event")
    begin, end = _pairs(phase, flow, category)
    kinds = interned.chosen(category[begin], _kind)
    nothing = np.full(len(begin), NULL)
    return {
        "start_ns": spans.start[begin],
        "end_ns": spans.start[end],
        "kind": kinds,
        "from_thread": thread[begin].astype(np.int32),
        "to_thread": thread[end].astype(np.int32),
        "from_correlation": nothing,
        "to_stream": nothing,
        "device": nothing,
    }


def _kind(category: str) -> int:
    return FlowKind.FORWARD_BACKWARD if category == "fwdbwd" else FlowKind.OTHER


def _pairs(phase: Array, flow: Array, category: Array) -> tuple[Array, Array]:
    """Rows of beginnings and of the ends that belong to them.

    Ids count from 1 again in every category, and may be used anew later: the n-th beginning of
    an id goes with its n-th end.
    """
    arrows = np.flatnonzero((flow != NULL) & ((phase == _BEGIN) | (phase == _END)))
    is_end = phase[arrows] == _END
    order = np.lexsort((is_end, flow[arrows], category[arrows]))
    arrows, is_end = arrows[order], is_end[order]
    fresh = np.ones(len(arrows), np.bool_)
    same = (flow[arrows[1:]] == flow[arrows[:-1]]) & (category[arrows[1:]] == category[arrows[:-1]])
    fresh[1:] = ~same
    group = np.cumsum(fresh) - 1
    ends = np.bincount(group, is_end).astype(np.int64)
    begins = np.bincount(group).astype(np.int64) - ends
    first = np.flatnonzero(fresh)
    place = np.arange(len(arrows)) - first[group]  # beginnings stand first in their group
    chosen = np.flatnonzero(~is_end & (place < ends[group]))
    return arrows[chosen], arrows[chosen + begins[group[chosen]]]


def _synchronisations(sources: Sources) -> dict[str, Array]:
    columns, interned = sources.columns, sources.interned
    spans = sources.clock.spans(columns, Lane.SYNC)

    def take(column: str) -> Array:
        return spans.of(columns.take(Lane.SYNC, column))

    waits = interned.chosen(take("name"), lambda name: "Wait" in name) == 1
    correlation, record = take("correlation"), take("record_correlation")
    absent = np.full(len(waits), ABSENT, np.int32)
    return {
        "start_ns": spans.start,
        "end_ns": spans.start + spans.duration,
        "kind": np.where(waits, FlowKind.EVENT_WAIT, FlowKind.DEVICE_SYNC),
        "from_thread": absent,
        "to_thread": absent,
        "from_correlation": np.where(waits, record, correlation),
        "to_stream": take("stream"),
        "device": take("device"),
    }
