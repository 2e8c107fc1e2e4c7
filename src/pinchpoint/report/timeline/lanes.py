"""What the timeline draws: slices on lanes, steps, counters and the places of findings.

Slices are sorted by lane, depth and start. Those of one lane and depth are a *track*. How often
each name occurs, and for how long, is counted over everything that was recorded, drawn or not.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.ancestry import depths, parents
from pinchpoint.analysis.host.attribution import backward_nodes, forward_rows
from pinchpoint.frozen import dataclass
from pinchpoint.report.timeline.kinds import Numbers, kinds
from pinchpoint.trace import Table, Trace

MOST_LANES = 64  # more than a person looks through
MOST_LEVELS = 64  # of calls inside calls
MOST_COUNTED = 1 << 24  # entries of a table of counts: faster than a sort, within its memory
NO_LINK = -1  # no position of a slice
ROW_TABLES = ("device_ops", "host_ops", "api_calls")  # whose rows are drawn, in this order


@dataclass(frozen=True)
class Lane:
    """A host thread, or a stream of a device."""

    label: str
    kind: str  # device, host
    slices: int


@dataclass(frozen=True, eq=False)
class Entries:
    """Every name of a kind of event, over all events of the recording, drawn or not.

    Equally long columns: positions in Trace.names and in KINDS, how many events, together and the
    longest of them.
    """

    name: Numbers
    kind: Numbers
    count: Numbers
    total_ns: Numbers
    longest_ns: Numbers

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True, eq=False)
class Slices:
    """Equally long columns. ``entry`` is a position in Entries, ``link`` the slice of the call that
    started a device operation or of the forward operator of a backward one, ``count`` how many
    events a folded stretch stands for (0: the slice is one event)."""

    lane: Numbers
    depth: Numbers
    start_ns: Numbers
    duration_ns: Numbers
    entry: Numbers
    link: Numbers
    count: Numbers
    row: (
        Numbers  # of device_ops, host_ops and api_calls one after the other; the first of a stretch
    )

    def __len__(self) -> int:
        return len(self.lane)


@dataclass(frozen=True, eq=False)
class Timeline:
    """Everything that is drawn, and in ``left_out`` what is not."""

    lanes: tuple[Lane, ...]
    slices: Slices
    entries: Entries
    start_ns: int
    end_ns: int
    left_out: tuple[str, ...]
    place_of: Mapping[str, Numbers]  # by table: the slice that draws each row, or NO_LINK


def timeline(trace: Trace) -> Timeline | None:
    """Every event of a recording with its place; None where nothing has a place in time."""
    parts = [part for part in (_device(trace), *_host(trace)) if part is not None]
    if not parts:
        return None
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    key, depth, start, duration, name, link = columns
    entries, entry = _entries(trace, name, duration)
    lanes, lane, left_out = _lanes(trace, key)
    keep = (lane >= 0) & (depth < MOST_LEVELS)
    if deeper := int(np.count_nonzero((lane >= 0) & (depth >= MOST_LEVELS))):
        left_out.append(f"{deeper:,} calls more than {MOST_LEVELS} levels deep")
    order = _order(lane * MOST_LEVELS + depth, start, keep)
    place = np.full(len(lane) + 1, NO_LINK, np.int64)
    place[order] = np.arange(len(order))
    slices = Slices(
        lane[order],
        depth[order],
        start[order],
        duration[order],
        entry[order],
        place[link[order]],
        np.zeros(len(order), np.int64),
        order,
    )
    end = int((start + duration).max())
    first = int(start.min())
    where = by_table(trace, place)
    return Timeline(lanes, slices, entries, first, max(end, first + 1), tuple(left_out), where)


def _entries(trace: Trace, name: Numbers, duration: Numbers) -> tuple[Entries, Numbers]:
    """The names with their exact sums, and the entry of each row."""
    names = len(trace.names)
    keys, entry, count = distinct(np.concatenate(kinds(trace)) * names + name)
    total, longest = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    np.add.at(total, entry, duration)
    np.maximum.at(longest, entry, duration)
    return Entries(keys % names, keys // names, count, total, longest), entry


def _order(track: Numbers, start: Numbers, keep: NDArray[np.bool_]) -> Numbers:
    """Rows to keep, by track and then start. Two stable sorts: tables come sorted by start, which
    makes the first one a merge, and tracks are few, which makes the second one a count."""
    by_start = np.argsort(start, kind="stable")
    by_start = by_start[keep[by_start]]
    few = track[by_start].astype(np.int16 if MOST_LANES * MOST_LEVELS < 1 << 15 else np.int64)
    found: Numbers = by_start[np.argsort(few, kind="stable")]
    return found


def by_table(trace: Trace, place: Numbers) -> dict[str, Numbers]:
    """The place of each row, cut into the tables that were laid one after the other."""
    found, begin = {}, 0
    for name in ROW_TABLES:
        table = getattr(trace, name)
        rows = 0 if table is None else len(table)
        found[name] = place[begin : begin + rows]
        begin += rows
    return found


def _device(trace: Trace) -> list[Numbers] | None:
    """Device operations; the key of a lane is unique and negative: minus (device, stream) - 1."""
    ops = trace.device_ops
    if ops is None or not len(ops):
        return None
    streams = np.unique(ops.filled("stream", 0), return_inverse=True)[1].reshape(-1)
    device = ops["device"].astype(np.int64)
    key = -1 - ((device - device.min()) * (int(streams.max()) + 1) + streams)
    first_call = len(ops) + (0 if trace.host_ops is None else len(trace.host_ops))
    call = ops.filled("api_call", 0).astype(np.int64)
    link = np.where(ops.known("api_call"), call + first_call, NO_LINK)
    return [key, _zeros(ops), ops["start_ns"], ops["duration_ns"], ops["name"], link]


def _host(trace: Trace) -> list[list[Numbers] | None]:
    host, api = trace.host_ops, trace.api_calls
    depth = _zeros(host) if host is None else depths(parents(host))
    found: list[list[Numbers] | None] = []
    if host is not None and len(host):
        found.append(_calls(host, depth, _forward(trace, host)))
    if api is not None and len(api):
        inside = np.append(depth, -1)[api.filled("host_op", -1)] + 1
        found.append(_calls(api, inside, np.full(len(api), NO_LINK, np.int64)))
    return found


def _calls(rows: Any, depth: Numbers, link: Numbers) -> list[Numbers]:
    lane = rows["thread"].astype(np.int64)
    return [lane, depth, rows["start_ns"], rows["duration_ns"], rows["name"], link]


def _forward(trace: Trace, host: Table) -> Numbers:
    """Of nodes of the backward pass the row of the forward operator, else NO_LINK."""
    forward = forward_rows(trace)
    known = backward_nodes(trace) & (forward < len(host)) & (forward != np.arange(len(host)))
    devices = 0 if trace.device_ops is None else len(trace.device_ops)
    return np.where(known, forward + devices, NO_LINK)


def _zeros(rows: Any) -> Numbers:
    return np.zeros(0 if rows is None else len(rows), np.int64)


def _lanes(trace: Trace, key: Numbers) -> tuple[tuple[Lane, ...], Numbers, list[str]]:
    """The lanes, devices first and then threads by events; the lane of each slice, -1 for none."""
    keys, which, counts = distinct(key)
    order = np.lexsort((-counts, keys >= 0))
    shown = order[:MOST_LANES]
    position = np.full(len(keys), -1, np.int64)
    position[shown] = np.arange(len(shown))
    labels = _device_labels(trace)
    lanes = tuple(
        Lane(
            labels[int(keys[i])] if keys[i] < 0 else _thread_label(trace, int(keys[i])),
            "device" if keys[i] < 0 else "host",
            int(counts[i]),
        )
        for i in shown
    )
    rest = order[MOST_LANES:]
    said = f"{len(rest):,} lanes with the fewest events ({int(counts[rest].sum()):,} of them)"
    return lanes, position[which], [said] if len(rest) else []


def distinct(values: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Distinct values in order, the position of each value among them, and how often they occur.

    As ``np.unique``, without its sort where the values lie close together.
    """
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low > MOST_COUNTED:
        found, which, counts = np.unique(values, return_inverse=True, return_counts=True)
        return found, which.reshape(-1), counts
    counts = np.bincount(values - low, minlength=1)
    present = np.flatnonzero(counts)
    position = np.cumsum(counts > 0) - 1
    return present + low, position[values - low], counts[present]


def _device_labels(trace: Trace) -> dict[int, str]:
    ops, part = trace.device_ops, _device(trace)
    if ops is None or part is None:
        return {}
    keys, first = np.unique(part[0], return_index=True)
    labels = {}
    for key, row in zip(keys.tolist(), first.tolist(), strict=True):
        stream = ops.value("stream", row)
        known = "" if stream is None else f" stream {stream}"
        labels[key] = f"device {int(ops['device'][row])}{known}"
    return labels


def _thread_label(trace: Trace, number: int) -> str:
    thread = trace.threads[number]
    return thread.label or f"thread {thread.thread}"
