"""What the file itself shows to be wrong or missing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pinchpoint.importers._captures import in_capture
from pinchpoint.importers.health import Fact
from pinchpoint.importers.kineto.clock import Clock
from pinchpoint.importers.kineto.columns import Columns
from pinchpoint.importers.kineto.reading.document import DocumentFrame
from pinchpoint.importers.kineto.reading.rare import Rare
from pinchpoint.importers.kineto.reading.scan import Scanned
from pinchpoint.trace import ApiKind, Device, DeviceKind, HostKind, Names, Table
from pinchpoint.trace.arrays import Array

MOST_WRITTEN = 1_000_000  # events; the converters of TensorFlow and JAX stop there
MOST_LOST_RATIO = 0.5  # of launches without a device operation: the device side is unusable
OVERHEAD_RATIO = 0.01  # of the recording: below this, nobody needs to know
PARTIAL_STEP_RATIO = 0.5  # of the median launches of a step
WHOLE_STEP_RATIO = 0.95  # of the device operations of the fullest step, in a file that is cut off
CLOCK_SLACK_NS = 10_000  # CUPTI converts device clocks to within a few microseconds
MANY_BEFORE_LAUNCH_RATIO = 0.01  # of the operations: fewer are the clock's
AFTER_WINDOW_NS = 10**9  # buffers are flushed and kernels end within a second
ENCLOSED_OPERATIONS = 10  # on its own stream, inside one operation: that one is malformed
LONGEST_RATIO = 2  # of the recording: no operation lasts longer than it was recorded
DOMINANT_RATIO = 0.5  # of the device's time
QUEUE_FULL = "Command Buffer Full"  # a full launch queue: not the profiler's work

_OUT_OF_RANGE = re.compile(r"Out-of-range = (\d{1,12})")
_STOPPED_EARLY = re.compile(r"CUPTI stopped early\? = [1-9]")


@dataclass
class ScannedRecording:
    """What health looks at."""

    frame: DocumentFrame
    scanned: Scanned
    columns: Columns
    unpaired: int
    clock: Clock
    rare: Rare
    damage: str | None
    rank: int | None
    devices: tuple[Device, ...]
    host_ops: Table
    api_calls: Table
    device_ops: Table
    steps: Table
    names: Names
    crossings: int

    @property
    def rows(self) -> int:
        """Events that have a duration."""
        return len(self.host_ops) + len(self.api_calls) + len(self.device_ops)

    @property
    def span_ns(self) -> tuple[int, int]:
        """First start and last end of anything."""
        tables = [t for t in (self.host_ops, self.api_calls, self.device_ops) if len(t)]
        if not tables:
            return 0, 0
        return min(int(t["start_ns"][0]) for t in tables), max(int(t.end_ns.max()) for t in tables)


def recording_facts(recording: ScannedRecording) -> list[Fact]:
    """Every fact that the recording shows."""
    parts = (_text, _times, _activity, _links, _streams, _host, _steps, _cut_steps, _metadata)
    return [fact for part in parts for fact in part(recording)]


def _text(recording: ScannedRecording) -> Iterator[Fact]:
    scanned = recording.scanned
    if _is_cut(recording):
        why = recording.damage or "the list of events does not end"
        yield Fact("cut-off", detail=f"the file is cut off: {why}")
    if scanned.skipped:
        yield Fact("broken-text", scanned.skipped)
    if recording.frame.duplicates:
        keys = ", ".join(sorted(set(recording.frame.duplicates))[:5])
        count = len(recording.frame.duplicates)
        yield Fact("duplicate-keys", count, f"keys occur twice: {keys}; the last one counts")
    if recording.columns.unread:
        yield Fact("phases-unread", recording.columns.unread)
    if MOST_WRITTEN in (scanned.rows, recording.rows):
        yield Fact("events-capped")
    if recording.unpaired:
        yield Fact("pairs-unmatched", recording.unpaired)


def _is_cut(recording: ScannedRecording) -> bool:
    return bool(recording.damage) or not recording.scanned.ended


def _times(recording: ScannedRecording) -> Iterator[Fact]:
    for fact, count in (
        ("times-missing", recording.columns.untimed),
        ("starts-lost", recording.clock.clamped),
        ("durations-negative", recording.clock.negative),
    ):
        if count:
            yield Fact(fact, count)
    tables = (recording.host_ops, recording.api_calls, recording.device_ops)
    rows = sum(len(t) for t in tables)
    if rows and not any(t["duration_ns"].any() for t in tables):
        yield Fact("durations-zero", rows)
    window = recording.rare.window_end_ns
    if window is not None:
        limit = window - recording.clock.zero_ns + AFTER_WINDOW_NS
        late = sum(int((t.end_ns > limit).sum()) for t in tables)
        if late:
            yield Fact("after-window", late, time_ns=limit)


def _activity(recording: ScannedRecording) -> Iterator[Fact]:
    calls, operations = recording.api_calls, recording.device_ops
    if len(operations):
        if not len(recording.host_ops):
            yield Fact("no-host-activity")
        return
    launches = int(np.isin(calls["kind"], (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH)).sum())
    if _is_cut(recording) and recording.devices:  # device work stands at the end of a file
        yield Fact("cut-off-steps")
    elif launches:
        yield Fact("kernels-not-recorded", launches)
    elif len(recording.host_ops):
        yield Fact("cpu-only")


def _links(recording: ScannedRecording) -> Iterator[Fact]:
    calls, operations = recording.api_calls, recording.device_ops
    if not len(operations):
        return
    launched = operations.known("api_call")
    if _without_correlations(operations, calls):
        yield Fact("links-missing", len(operations))
        return
    if orphans := int((~launched).sum()):
        first = int(np.flatnonzero(~launched)[0])
        yield Fact("launches-missing", orphans, time_ns=int(operations["start_ns"][first]))
    yield from _lost_launches(recording, launched)
    call = operations["api_call"][launched]
    early = calls["start_ns"][call] - operations["start_ns"][launched]
    if count := int((early > 0).sum()):
        worst = int(early.max())
        many = int((early > CLOCK_SLACK_NS).sum()) > MANY_BEFORE_LAUNCH_RATIO * len(early)
        detail = (
            f"{count} device operations start before their launch, by up to {worst / 1000:g} µs"
        )
        yield Fact("clocks-disagree" if many else "starts-before-launch", count, detail)


def _without_correlations(operations: Table, calls: Table) -> bool:
    """Whether launches are there, and most device operations or all launches have no number of
    their own by which they could belong together; ROCm writes 0 for none."""
    launches = calls.take(np.isin(calls["kind"], (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH)))
    if len(launches) < 2 or len(operations) < 2:
        return False
    used = operations.filled("correlation", 0)
    without = used <= 0 if len(np.unique(used)) > 1 else np.ones(len(used), np.bool_)
    alike = len(np.unique(launches.filled("correlation", 0))) == 1
    return bool(alike or without.mean() > MOST_LOST_RATIO)


def _lost_launches(recording: ScannedRecording, launched: Array) -> Iterator[Fact]:
    calls, operations = recording.api_calls, recording.device_ops
    if _is_mtia(recording):  # its launches are not all on the device's list
        return
    launch = np.isin(calls["kind"], (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH))
    launch &= ~in_capture(calls, recording.names)
    answered = np.zeros(len(calls), np.bool_)
    answered[operations["api_call"][launched]] = True
    lost = np.flatnonzero(launch & ~answered)
    if not len(lost):
        return
    what = "launches-lost"
    if len(lost) > MOST_LOST_RATIO * launch.sum():
        instead = int((~launched).sum())  # what ran meanwhile, launched before
        what = "device-activity-lost" if instead < len(lost) / 2 else "device-far-behind"
    yield Fact(
        what,
        len(lost),
        time_ns=int(calls["start_ns"][lost[0]]),
    )


def _is_mtia(recording: ScannedRecording) -> bool:
    return any(device.vendor == "meta" for device in recording.devices)


def _streams(recording: ScannedRecording) -> Iterator[Fact]:
    operations = recording.device_ops
    if len(operations) < 2 or _is_mtia(recording):
        return
    stated = recording.rare.recording_ns
    longest = int(operations["duration_ns"].argmax())
    if stated and operations["duration_ns"][longest] > LONGEST_RATIO * (stated[1] - stated[0]):
        yield Fact("duration-absurd", time_ns=int(operations["start_ns"][longest]))
        return
    order = np.lexsort((operations["stream"], operations["device"]))  # stable: by time within
    place = np.stack((operations["device"], operations["stream"]))[:, order]
    start, end = operations["start_ns"][order], operations.end_ns[order]
    same = (place[:, 1:] == place[:, :-1]).all(axis=0)
    overlapping = same & (start[1:] < end[:-1])
    count = int(overlapping.sum())
    if not count:
        return
    yield Fact("streams-overlap", count, time_ns=int(start[1:][overlapping].min()))
    yield from _dominant_operation(operations, order, np.cumsum(np.append(0, ~same)))


def _dominant_operation(operations: Table, order: Array, place: Array) -> Iterator[Fact]:
    """An operation that encloses many others of its stream and most of the device's time."""
    duration = operations["duration_ns"][order]
    longest = int(duration.argmax())
    first, last = int(operations["start_ns"].min()), int(operations.end_ns.max())
    if duration[longest] < DOMINANT_RATIO * (last - first):
        return
    row = order[longest]
    start, end = operations["start_ns"], operations.end_ns
    own = order[place == place[longest]]
    inside = (start[own] >= start[row]) & (end[own] <= end[row])
    graph = operations.known("correlation")[row] & operations.known("correlation")[own]
    inside &= ~(graph & (operations["correlation"][own] == operations["correlation"][row]))
    if int(inside.sum()) > ENCLOSED_OPERATIONS:
        yield Fact("duration-absurd", time_ns=int(start[row]))


def _host(recording: ScannedRecording) -> Iterator[Fact]:
    if recording.crossings:
        yield Fact("host-misnested", recording.crossings)
    host = recording.host_ops
    rows = np.flatnonzero(host["kind"] == HostKind.OVERHEAD)
    own = [n for n in np.unique(host["name"][rows]).tolist() if recording.names[n] != QUEUE_FULL]
    rows = rows[np.isin(host["name"][rows], own)]
    if not len(rows):
        return
    first, last = recording.span_ns
    total = int(host["duration_ns"][rows].sum())
    if total > OVERHEAD_RATIO * (last - first):
        detail = f"the profiler reports {total / 1e6:.3g} ms of its own work in the recording"
        yield Fact("profiler-overhead", len(rows), detail, int(host["start_ns"][rows[0]]))


def _steps(recording: ScannedRecording) -> Iterator[Fact]:
    steps, calls = recording.steps, recording.api_calls
    if len(steps) < 3 or not len(calls):
        return
    launches = calls["start_ns"][np.isin(calls["kind"], (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH))]
    counts = np.searchsorted(launches, steps.end_ns) - np.searchsorted(launches, steps["start_ns"])
    usual = float(np.median(counts))
    ends = {"first": counts[0], "last": counts[-1]}
    partial = [which for which, n in ends.items() if n < PARTIAL_STEP_RATIO * usual]
    if partial:
        detail = f"the {' and '.join(partial)} step holds far fewer launches than the others"
        yield Fact("steps-partial", len(partial), detail)


def _cut_steps(recording: ScannedRecording) -> Iterator[Fact]:
    """Of a file that is cut off, whether any step but the first has all its device work."""
    steps, calls, operations = recording.steps, recording.api_calls, recording.device_ops
    if not _is_cut(recording) or len(steps) < 3 or not len(operations):
        return
    called = operations["api_call"][operations.known("api_call")]
    asked = np.sort(calls["start_ns"][called])
    counts = np.searchsorted(asked, steps.end_ns) - np.searchsorted(asked, steps["start_ns"])
    whole = counts >= WHOLE_STEP_RATIO * counts.max()
    if not whole[1:-1].any():
        yield Fact("cut-off-steps")


def _metadata(recording: ScannedRecording) -> Iterator[Fact]:
    operations = recording.device_ops
    if len(operations) and not any(device.name for device in recording.devices):
        yield Fact("no-device-properties")
    collectives = int((operations["kind"] == DeviceKind.COLLECTIVE).sum())
    if collectives and recording.rank is None:
        yield Fact("rank-unknown", collectives)
    lines = "\n".join(_log_lines(recording.frame))
    outside = sum(int(count) for count in _OUT_OF_RANGE.findall(lines))
    if outside:
        yield Fact("outside-window", outside)
    if _STOPPED_EARLY.search(lines):
        yield Fact("stopped-early")


def _log_lines(frame: DocumentFrame) -> Iterator[str]:
    """What Kineto logged while it recorded; some versions put it into the header."""
    for level in ("INFO", "WARNING", "ERROR"):
        lines = frame.members.get(level)
        if isinstance(lines, list):
            yield from (line for line in lines if isinstance(line, str))
