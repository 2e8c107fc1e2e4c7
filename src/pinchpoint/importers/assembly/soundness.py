"""What the tables of a recording show of their own soundness, whatever format they came from.

Every importer of recordings asks the same questions here; ``docs/reference/health.md`` says which
importer can ask which.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pinchpoint.importers.health import Fact
from pinchpoint.trace import ApiKind, DeviceKind, Names, Table, Thread
from pinchpoint.trace.arrays import Array, distinct_rows

# ------------------------------------------------------------------------------------------------
# Launches into a graph that is being captured: they run nothing.


def in_capture(calls: Table, names: Names) -> NDArray[np.bool_]:
    """Calls inside a graph capture: what they launch runs later, if at all."""
    inside = np.zeros(len(calls), np.bool_)
    builds = np.flatnonzero(calls["kind"] == ApiKind.GRAPH_BUILD)
    began: dict[int, int] = {}
    for row in builds.tolist():
        name, thread = names[int(calls["name"][row])], int(calls["thread"][row])
        if "BeginCapture" in name:
            began[thread] = row
        elif "EndCapture" in name:
            first = began.pop(thread, 0)  # a capture that was under way when recording began
            inside[first:row] |= calls["thread"][first:row] == thread
    for thread, first in began.items():
        inside[first:] |= calls["thread"][first:] == thread
    return inside


MOST_LOST_RATIO = 0.5  # of launches without a device operation: the device side is unusable
CAPTURED_RATIO = 0.9  # of launches: warm-ups and copies stand beside a capture
CLOCK_SLACK_NS = 10_000  # CUPTI converts device clocks to within a few microseconds
MANY_BEFORE_LAUNCH_RATIO = 0.01  # of the operations: fewer are the clock's
ENCLOSED_OPERATIONS = 10  # on its own stream, inside one operation: that one is malformed
DOMINANT_RATIO = 0.5  # of the device's time
_GIVES_WORK = (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH)


def launches_of(calls: Table) -> Array:
    """Which calls launch a kernel or a graph."""
    return np.isin(calls["kind"], _GIVES_WORK)


def clocks(calls: Table | None, ops: Table | None) -> Iterator[Fact]:
    """Device operations that start before the call that launched them."""
    if calls is None or ops is None or not len(ops):
        return
    launched = ops.known("api_call")
    call = ops["api_call"][launched]
    early = calls["start_ns"][call] - ops["start_ns"][launched]
    if count := int((early > 0).sum()):
        worst = int(early.max())
        many = int((early > CLOCK_SLACK_NS).sum()) > MANY_BEFORE_LAUNCH_RATIO * len(early)
        detail = (
            f"{count} device operations start before their launch, by up to {worst / 1000:g} µs"
        )
        yield Fact("clocks-disagree" if many else "starts-before-launch", count, detail)


def stream_order(ops: Table | None) -> Iterator[Fact]:
    """Operations that overlap on one stream, and one that encloses most of the others."""
    if ops is None or len(ops) < 2:
        return
    stream = ops.filled("stream", -1)
    order = np.lexsort((stream, ops["device"]))  # stable: by time within
    place = np.stack((ops["device"], stream))[:, order]
    start, end = ops["start_ns"][order], ops.end_ns[order]
    same = (place[:, 1:] == place[:, :-1]).all(axis=0) & (place[1, 1:] >= 0)
    overlapping = same & (start[1:] < end[:-1])
    count = int(overlapping.sum())
    if not count:
        return
    yield Fact("streams-overlap", count, time_ns=int(start[1:][overlapping].min()))
    yield from _absurd(ops, order, np.cumsum(np.append(0, ~same)))


def _absurd(ops: Table, order: Array, place: Array) -> Iterator[Fact]:
    """An operation that encloses many others of its stream and most of the device's time."""
    duration = ops["duration_ns"][order]
    longest = int(duration.argmax())
    first, last = int(ops["start_ns"].min()), int(ops.end_ns.max())
    if duration[longest] < DOMINANT_RATIO * (last - first):
        return
    row = order[longest]
    start, end = ops["start_ns"], ops.end_ns
    own = order[place == place[longest]]
    inside = (start[own] >= start[row]) & (end[own] <= end[row])
    graph = ops.known("correlation")[row] & ops.known("correlation")[own]
    inside &= ~(graph & (ops["correlation"][own] == ops["correlation"][row]))
    if int(inside.sum()) > ENCLOSED_OPERATIONS:
        yield Fact("duration-absurd", time_ns=int(start[row]))


def orphans(ops: Table | None) -> Iterator[Fact]:
    """Device operations whose launching call is not in the file."""
    if ops is None or not len(ops):
        return
    unlaunched = np.flatnonzero(~ops.known("api_call"))
    if len(unlaunched):
        first = int(ops["start_ns"][unlaunched[0]])
        yield Fact("launches-missing", len(unlaunched), time_ns=first)


def mostly_captured(calls: Table, names: Names) -> Iterator[Fact]:
    """Nearly all launches were captured into a graph, so that next to nothing ran."""
    every = launches_of(calls)
    taken = np.flatnonzero(every & in_capture(calls, names))
    if len(taken) and len(taken) >= CAPTURED_RATIO * every.sum():
        yield Fact("graph-captured", len(taken), time_ns=int(calls["start_ns"][taken[0]]))


def lost_launches(calls: Table | None, ops: Table | None, names: Names) -> Iterator[Fact]:
    """Launches of kernels and graphs without device work, beside those into a captured graph."""
    if calls is None or not len(calls):
        return
    yield from mostly_captured(calls, names)
    launch = launches_of(calls) & ~in_capture(calls, names)
    answered = np.zeros(len(calls), np.bool_)
    if ops is not None and len(ops):
        answered[ops["api_call"][ops.known("api_call")]] = True
    if not launch.any() and (ops is None or not len(ops)):
        launch = np.isin(calls["kind"], (ApiKind.COPY, ApiKind.MEMSET))  # was all the work there is
    lost = np.flatnonzero(launch & ~answered)
    if not len(lost):
        return
    what = "launches-lost"
    if len(lost) > MOST_LOST_RATIO * launch.sum():
        what = _instead(ops, len(lost))
    yield Fact(what, len(lost), time_ns=int(calls["start_ns"][lost[0]]))


def _instead(ops: Table | None, lost: int) -> str:
    """What it means that most launches have no device work: by what ran in their place."""
    if ops is None or not np.isin(ops["kind"], (DeviceKind.KERNEL, DeviceKind.COLLECTIVE)).any():
        return "kernels-not-recorded"
    unlinked = ~ops.known("api_call")
    if unlinked.sum() < lost / 2:
        return "device-activity-lost"
    alike = len(np.unique(ops.filled("correlation", 0)[unlinked])) == 1
    return "links-missing" if alike else "device-far-behind"


def no_calls(calls: Table | None, ops: Table | None) -> Iterator[Fact]:
    """Device work, and no call at all that could have asked for it."""
    if ops is not None and len(ops) and (calls is None or not len(calls)):
        yield Fact("calls-missing")


def sharing(calls: Table | None, ops: Table | None, threads: Sequence[Thread]) -> Iterator[Fact]:
    """Several processes that gave work to devices, and a process that gave it to several."""
    if calls is None or ops is None or not len(calls) or not len(ops):
        return
    rows = np.flatnonzero(ops.known("api_call"))
    thread = calls["thread"][ops["api_call"][rows]]
    places = distinct_rows(thread.astype(np.int64), ops["device"][rows].astype(np.int64))[
        0
    ].tolist()
    devices: dict[str, set[int]] = {}
    for number, device in places:
        devices.setdefault(threads[number].process, set()).add(device)
    if len(devices) > 1:
        yield Fact("processes-several", len(devices))
    most = max((len(of) for of in devices.values()), default=0)
    if most > 1:
        yield Fact("devices-several", most)


def who(ops: Table | None, *, named: bool, rank: int | None) -> Iterator[Fact]:
    """Whether the file names its device, and its rank where there are collectives."""
    if ops is None or not len(ops):
        return
    if not named:
        yield Fact("no-device-properties")
    collectives = int((ops["kind"] == DeviceKind.COLLECTIVE).sum())
    if collectives and rank is None:
        yield Fact("rank-unknown", collectives)
