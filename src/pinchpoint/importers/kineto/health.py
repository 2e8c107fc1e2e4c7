"""What the file itself shows to be wrong or missing."""

from collections.abc import Callable, Iterator

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.importers.assembly.soundness import (
    MOST_LOST_RATIO,
    clocks,
    in_capture,
    launches_of,
    mostly_captured,
    no_calls,
    orphans,
    sharing,
    stream_order,
    who,
)
from pinchpoint.importers.health import Fact
from pinchpoint.importers.kineto.clock import Clock
from pinchpoint.importers.kineto.columns import Columns
from pinchpoint.importers.kineto.device_kinds import is_called_as_on_device
from pinchpoint.importers.kineto.reading.document import DocumentFrame
from pinchpoint.importers.kineto.reading.rare import Rare
from pinchpoint.importers.kineto.reading.scan import Scanned
from pinchpoint.importers.kineto.recorder import DEVICE_PROCESSES
from pinchpoint.importers.kineto.threads import timed_by_operator
from pinchpoint.regex import regex
from pinchpoint.trace import Device, HostKind, Names, Table, Thread
from pinchpoint.trace.arrays import Array, distinct

MOST_WRITTEN = 1_000_000  # events; the converters of TensorFlow and JAX stop there
OVERHEAD_RATIO = 0.01  # of the recording: below this, nobody needs to know
PARTIAL_STEP_RATIO = 0.5  # of the median launches of a step
WHOLE_STEP_RATIO = 0.95  # of the device operations of the fullest step, in a file that is cut off
AFTER_WINDOW_NS = 10**9  # buffers are flushed and kernels end within a second
LONGEST_RATIO = 2  # of the recording: no operation lasts longer than it was recorded
QUEUE_FULL = "Command Buffer Full"  # a full launch queue: not the profiler's work

_OUT_OF_RANGE = regex(r"Out-of-range = (\d{1,12})")
_STOPPED_EARLY = regex(r"CUPTI stopped early\? = [1-9]")


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
    threads: tuple[Thread, ...]

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
        ("times-beyond", recording.clock.beyond),
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
    if any(map(timed_by_operator, recording.columns.places)):
        yield Fact("times-by-operator")
    if len(operations):
        if not len(recording.host_ops):
            yield Fact("no-host-activity")
        return
    launches = int(launches_of(calls).sum())
    if _is_cut(recording) and recording.devices:  # device work stands at the end of a file
        yield Fact("cut-off-steps")
    elif launches:
        yield Fact("kernels-not-recorded", launches)
    elif unread := (
        _on_device_lanes(recording)
        or _called(recording, is_called_as_on_device)
        or _called(recording, _STREAMS_OF_MINDSPORE)
    ):
        yield Fact("device-unread", unread)
    elif of_device := _of_device_libraries(recording):
        yield Fact("device-left-out", of_device)
    elif len(recording.host_ops):
        yield Fact("cpu-only")


_DEVICE_LIBRARY = ("aten::cudnn_", "aten::_cudnn_", "aten::miopen_", "aten::_miopen_", "nccl:")


def _of_device_libraries(recording: ScannedRecording) -> int:
    """Operators that only a device of NVIDIA or AMD runs."""
    host, names = recording.host_ops, recording.names
    count = np.bincount(host["name"])
    used = np.flatnonzero(count).tolist()
    return sum(int(count[name]) for name in used if names[name].startswith(_DEVICE_LIBRARY))


# Beside the operations of a graph, which are named by number (MatMul-op19): MindSpore's sums of
# when each stream of a device was at work.
_STREAMS_OF_MINDSPORE = regex(r"stream_\d+_parallel_\d+$").match


def _called(recording: ScannedRecording, so: Callable[[str], object]) -> int:
    """Ranges of the host that have the name of what a device does."""
    host, names = recording.host_ops, recording.names
    count = np.bincount(host["name"][host["kind"] == HostKind.ANNOTATION])
    used = np.flatnonzero(count).tolist()
    return sum(int(count[name]) for name in used if so(names[name]))


def _on_device_lanes(recording: ScannedRecording) -> int:
    """Events of a process that its recorder names as a device, read as of the host."""
    named = recording.rare.process_names
    of_device = [named.get(t.process) in DEVICE_PROCESSES for t in recording.threads]
    lanes = np.flatnonzero(of_device)
    return int(np.isin(recording.host_ops["thread"], lanes).sum())


def _links(recording: ScannedRecording) -> Iterator[Fact]:
    calls, operations = recording.api_calls, recording.device_ops
    yield from mostly_captured(calls, recording.names)
    if not len(operations):
        return
    launched = operations.known("api_call")
    if _without_correlations(operations, calls):
        yield Fact("links-missing", len(operations))
        return
    yield from orphans(operations)
    yield from _lost_launches(recording, launched)
    yield from clocks(calls, operations)


def _without_correlations(operations: Table, calls: Table) -> bool:
    """Whether launches are there, and most device operations or all launches have no number of
    their own by which they could belong together; ROCm writes 0 for none."""
    launches = calls.take(launches_of(calls))
    if len(launches) < 2 or len(operations) < 2:
        return False
    used = operations.filled("correlation", 0)
    without = used <= 0 if (used != used[0]).any() else np.ones(len(used), np.bool_)
    of_launches = launches.filled("correlation", 0)
    alike = not (of_launches != of_launches[0]).any()
    return bool(alike or without.mean() > MOST_LOST_RATIO)


def _lost_launches(recording: ScannedRecording, launched: Array) -> Iterator[Fact]:
    calls, operations = recording.api_calls, recording.device_ops
    if _is_mtia(recording):  # its launches are not all on the device's list
        return
    launch = launches_of(calls)
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
    yield from stream_order(operations)


def _host(recording: ScannedRecording) -> Iterator[Fact]:
    if recording.crossings:
        yield Fact("host-misnested", recording.crossings)
    host = recording.host_ops
    rows = np.flatnonzero(host["kind"] == HostKind.OVERHEAD)
    own = [n for n in distinct(host["name"][rows]).tolist() if recording.names[n] != QUEUE_FULL]
    rows = rows[np.isin(host["name"][rows], np.array(own, np.int32))]
    if not len(rows):
        return
    first, last = recording.span_ns
    total = int(host["duration_ns"][rows].sum())
    if total > OVERHEAD_RATIO * (last - first):
        detail = f"the profiler reports {total / 1e6:.3g} ms of its own work in the recording"
        yield Fact("profiler-overhead", len(rows), detail, int(host["start_ns"][rows[0]]))


def _steps(recording: ScannedRecording) -> Iterator[Fact]:
    steps, calls = recording.steps, recording.api_calls
    if len(steps) < 3 or not len(calls) or recording.columns.left_out is not None:
        return
    launches = calls["start_ns"][launches_of(calls)]
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
    named = any(device.name for device in recording.devices)
    yield from who(operations, named=named, rank=recording.rank)
    yield from no_calls(recording.api_calls, operations)
    yield from sharing(recording.api_calls, operations, recording.threads)
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
