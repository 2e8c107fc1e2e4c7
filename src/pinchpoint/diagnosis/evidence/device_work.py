"""What rules about device work say alike: how much of it, the longest operation, and where."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.device.compiled import compiled_rows
from pinchpoint.analysis.host.ancestry import parents, within_rows
from pinchpoint.analysis.host.attribution import backward_nodes
from pinchpoint.analysis.host.frames import (
    PythonFrame,
    acts,
    acts_for_values,
    called_by_program,
    frame_of,
    idle_acts,
)
from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.analysis.host.source_lines import Place, place_of, places
from pinchpoint.analysis.host.timeline import NO_ROW, host_rows, look_up, timelines
from pinchpoint.analysis.replay import (
    Change,
    DropDeviceOps,
    DropSyncs,
    ScaleDeviceOps,
    ScaleHostSpans,
)
from pinchpoint.analysis.replay.least_durations import done_elsewhere
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_waits import WaitReason, host_waits
from pinchpoint.diagnosis.finding import Evidence, Location
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, KeptRows, Mask, Rows, distinct, distinct_rows

# ------------------------------------------------------------------------------------------------
# From rows of a trace to the place in the program that a finding names.


def location_of(trace: Trace, host_op: int) -> Location | None:
    """Where a row of ``host_ops`` belongs; None where the trace does not say.

    What the backward pass runs without a forward operator belongs to the function that started it.
    """
    found = place_of(trace, host_op)
    if found.file is None and (started := _started_backward(trace, host_op)) is not None:
        at = place_of(trace, started)
        found = replace(found, file=at.file, line=at.line, function=at.function)
    return None if found == Place() else _location(found)


def _started_backward(trace: Trace, row: int) -> int | None:
    """What the main thread is in when a row of the autograd thread begins; None elsewhere."""
    rows, main = host_rows(trace), main_thread(trace)
    if row >= len(rows) or not _runs_backward(trace, int(rows.thread[row])):
        return None
    start = rows.start_ns[row : row + 1]
    there = int(look_up(timelines(trace).get(main), start, start + 1).row[0])
    return None if there == NO_ROW else there


def _runs_backward(trace: Trace, thread: int) -> bool:
    host = trace.host_ops
    if host is None or thread == main_thread(trace):
        return False
    return bool((host["thread"][backward_nodes(trace)] == thread).any())


def place_until(trace: Trace, host_op: int, end_ns: int) -> Location | None:
    """The innermost function around a row of ``host_ops`` that lasts until then: its loop's."""
    host = trace.host_ops
    assert host is not None
    chain, row = parents(host), host_op
    while row < len(host) and host.end_ns[row] < end_ns:
        row = int(chain[row])
    return location_of(trace, row) if row < len(host) else None


def busiest_place(
    trace: Trace, host_ops: Rows, weight: NDArray[np.int64]
) -> tuple[Location | None, Rows]:
    """The place with most weight among rows, and the positions in ``host_ops`` that are there.

    Rows at ``len(trace.host_ops)`` have no place.
    """
    if not len(host_ops):
        return None, np.zeros(0, np.intp)
    around = places(trace)
    rows = 0 if trace.host_ops is None else len(trace.host_ops)
    row_of = np.minimum(host_ops, rows)
    asked, come, again = _once_each(row_of, rows)
    inside = asked[asked < rows]
    nowhere = np.full(len(asked) - len(inside), -1)  # the last one, if any
    told = (around.frame, around.module, around.operator, around.annotation, around.backward)
    kinds, which = distinct_rows(*(np.append(column[inside], nowhere) for column in told))
    first = np.full(len(kinds), len(row_of), np.intp)
    np.minimum.at(first, which, come)
    found: dict[Location | None, int] = {}  # numbered as they first come
    number = np.zeros(len(first), np.int32)
    for one in np.argsort(first).tolist():
        row = int(row_of[first[one]])
        place = location_of(trace, row) if row < rows else None
        number[one] = found.setdefault(place, len(found))
    numbers = number[which][again]
    took, there = np.bincount(numbers, weights=weight), list(found)
    in_a_file = took * [place is not None and place.file is not None for place in there]
    best = int(took.argmax())
    if not in_a_file[best] and in_a_file.max() >= TOLD_RATIO * took.sum():
        best = int(in_a_file.argmax())
    return there[best], np.flatnonzero(numbers == best)


def _once_each(rows: Rows, most: int) -> tuple[Rows, Rows, KeptRows]:
    """The distinct rows up to ``most`` in order, where each first comes, and which each is: a
    thousand rows are asked about a million times."""
    if len(rows) < most // 4:  # else marking them costs less than sorting
        distinct, first, which = np.unique(rows, return_index=True, return_inverse=True)
        return distinct, first, which.reshape(-1)
    first = np.full(most + 1, len(rows), np.intp)
    first[rows[::-1]] = np.arange(len(rows) - 1, -1, -1)
    come = first < len(rows)
    number = np.cumsum(come, dtype=np.int32) - 1
    return np.flatnonzero(come), first[come], number[rows]


# Of all: a function that is open when recording ends is not in it, and one of three steps has none.
TOLD_RATIO = 0.25


def _location(place: Place) -> Location:
    return Location(place.file, place.line, place.function, place.module, place.operator)


# ------------------------------------------------------------------------------------------------
# What rules about device work say alike: how much of it, the longest operation, and where.


@dataclass(frozen=True, eq=False)
class DeviceWork:
    """Device operations that the judged steps issued."""

    rows: Rows  # of device_ops
    count: float  # a step
    ns_per_step: int  # sum of their durations
    place: Location | None
    evidence: tuple[Evidence, ...]


def device_work(trace: Trace, wanted: Mask, what: str) -> DeviceWork | None:
    """The wanted rows of ``device_ops`` that judged steps issued; None without any."""
    ops = trace.device_ops
    if ops is None:
        return None
    rows = np.flatnonzero(wanted & device_ops_in_steps(trace))
    if not len(rows):
        return None
    took = ops["duration_ns"][rows].astype(np.int64)
    nowhere = 0 if trace.host_ops is None else len(trace.host_ops)
    place, _ = busiest_place(trace, ops.filled("host_op", nowhere)[rows].astype(np.intp), took)
    longest = int(rows[np.argmax(took)])
    total, count = round(per_step(trace, int(took.sum()))), per_step(trace, len(rows))
    evidence = (
        Evidence(what, total, "ns per step"),
        Evidence("operations", round(count, 2), "per step"),
        Evidence(
            "longest",
            int(took.max()),
            "ns",
            int(ops["start_ns"][longest]),
            trace.text(ops, "name", longest),
        ),
    )
    return DeviceWork(rows, count, total, place, evidence)


def compiled_place(trace: Trace, rows: Rows) -> Location | None:
    """The line that most of these device operations' time was compiled from; None where the
    recording holds no compiled program, or most of it is of several lines."""
    ops, compiled = trace.device_ops, trace.compiled_ops
    if ops is None or compiled is None or not len(rows):
        return None
    row, took = compiled_rows(trace)[rows], ops["duration_ns"][rows]
    source = np.where(row >= 0, compiled.filled("source", -1)[row], -1)
    by_source = np.bincount(source[source >= 0], took[source >= 0], 1)
    if 2 * by_source.max() < took.sum():
        return None
    found = _LINE.match(trace.names[int(by_source.argmax())])
    return Location(found["file"], int(found["line"])) if found else None


_LINE = regex(r"(?P<file>[^,\n]+):(?P<line>\d{1,7})(,|$)")


def without_work(trace: Trace, rows: Rows) -> Iterator[Change]:
    """Without these device operations; of products that nothing else does, nothing is left."""
    dropped = np.zeros(len(trace.device_ops or ()), np.bool_)
    dropped[rows] = True
    elsewhere = done_elsewhere(trace, dropped)[rows]
    yield DropDeviceOps(rows[elsewhere])
    if not elsewhere.all():
        yield ScaleDeviceOps(rows[~elsewhere], 0.0, flops_left=0.0, bytes_left=0.0)


def acts_behind(trace: Trace, rows: Rows) -> tuple[Rows, Rows]:
    """What the program wrote to start these device operations, as rows of ``host_ops``; and of
    ``api_calls`` those that started them or waited inside."""
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    around = acts(trace, ops.filled("host_op", len(host or ()))[rows].astype(np.intp))
    waits = host_waits(trace)
    inside = waits.api_calls[np.isin(called_by_program(trace)[waits.host_op], around)]
    return around, np.union1d(ops["api_call"][rows][ops.known("api_call")[rows]], inside)


def device_time_per_step(trace: Trace) -> float:
    """Sum of the durations of all device operations that the judged steps issued, a step."""
    ops = trace.device_ops
    if ops is None:
        return 0.0
    return per_step(trace, int(ops["duration_ns"][device_ops_in_steps(trace)].sum()))


# ------------------------------------------------------------------------------------------------
# What rules about waiting calls say alike: how often, how long, where, and the longest one.


ONCE = 1.5  # (1 + x)² / (1 + x²) of two waits, at x = 0.27


@dataclass(frozen=True, eq=False)
class Waiting:
    """Calls that wait for one reason, summed up."""

    api_calls: Rows
    acts: Rows  # rows of host_ops: what the program wrote, around those calls
    for_values: Rows  # of device_ops: launched for nothing but values that are read
    count: float  # acts of waiting a step; a copy and its sync are one
    long_count: float  # the same, those that are over at once counted for their share
    waited_ns: int  # a step
    place: Location | None  # where most of it happens
    call: str  # the longest wait's call
    evidence: tuple[Evidence, ...]

    @property
    def once_a_step(self) -> bool:
        """Whether one of them has nearly all of a step's waiting: what comes right after it finds
        the device idle. Of two, the shorter one is a quarter of the longer at most."""
        return self.long_count <= ONCE

    @property
    def dropped(self) -> tuple[Change, ...]:
        """What a step without these waits is: they and the host work around them are gone."""
        gone: tuple[Change, ...] = (DropSyncs(self.api_calls), ScaleHostSpans(self.acts, 0.0))
        return (*gone, DropDeviceOps(self.for_values)) if len(self.for_values) else gone

    @property
    def where(self) -> str:
        """`` in forward (model.py:41)``, or nothing."""
        text = str(self.place) if self.place else ""
        return f" in {text}" if text else ""


def waiting(trace: Trace, what: str, *reasons: WaitReason) -> Waiting | None:
    """The waits of the judged steps with these reasons; None where there are none."""
    waits, calls = host_waits(trace), trace.api_calls
    rows = waits.rows(*reasons)
    if calls is None or not len(rows):
        return None
    took, inside = waits.took_ns[rows], waits.host_op[rows]
    place, here = busiest_place(trace, inside, took)
    longest = int(here[np.argmax(took[here])])
    call = int(waits.api_calls[rows[longest]])
    times = len(rows) if WaitReason.EXPLICIT in reasons else len(distinct(inside))
    count, waited = per_step(trace, times), round(per_step(trace, int(took.sum())))
    name = trace.text(calls, "name", call) or ""
    at = int(calls["start_ns"][call])
    evidence = (
        Evidence(what, round(count, 2), "per step"),
        Evidence("host blocked in them", waited, "ns per step"),
        Evidence("longest wait", int(took[longest]), "ns", at, name),
    )
    wholly = acts_for_values(trace, inside) if reasons == (WaitReason.VALUE,) else rows[:0]
    wholly = _of_one_step(trace, wholly)
    mine = _inside(trace, wholly)
    for_values = np.flatnonzero(mine[_launchers(trace)] & device_ops_in_steps(trace))
    return Waiting(
        distinct(np.append(waits.api_calls[rows], waits.api_calls[mine[waits.host_op]])),
        distinct(np.append(idle_acts(trace, inside), wholly)),
        for_values,
        count,
        min(count, per_step(trace, _long(inside, took))),
        waited,
        place,
        name,
        (*evidence, *_for_values(trace, for_values)),
    )


def _long(inside: Rows, took: Ints) -> float:
    """As how many waits, all alike, these weigh: the square of their sum over that of each."""
    _, act = np.unique(inside, return_inverse=True)
    each = np.bincount(act, took.astype(np.float64))
    return float(each.sum() ** 2 / max((each**2).sum(), 1.0))


def _of_one_step(trace: Trace, host_ops: Rows) -> Rows:
    """Those that end in the step that they began in: of a call whose end the profiler missed the
    file has an end that it makes up, far behind, with all that came after inside it."""
    if trace.host_ops is None or not len(host_ops):
        return host_ops
    begun, host = steps(trace).host_start_ns, trace.host_ops
    first = np.searchsorted(begun, host["start_ns"][host_ops], "right")
    within: Rows = host_ops[first == np.searchsorted(begun, host.end_ns[host_ops], "left")]
    return within


def _for_values(trace: Trace, ops: Rows) -> tuple[Evidence, ...]:
    launched = round(per_step(trace, len(ops)), 2)
    what = "launched for nothing but these values"
    return (Evidence(what, launched, "per step"),) if len(ops) else ()


def _launchers(trace: Trace) -> Rows:
    ops, none = trace.device_ops, 0 if trace.host_ops is None else len(trace.host_ops)
    return np.zeros(0, np.intp) if ops is None else ops.filled("host_op", none).astype(np.intp)


def _inside(trace: Trace, host_ops: Rows) -> Mask:
    """Whether each row of ``host_ops`` is one of these or inside; one more element for no row."""
    host = trace.host_ops
    if host is None:
        return np.zeros(1, np.bool_)
    return within_rows(parents(host), host_ops)


@once_per_trace
def reading_function(trace: Trace) -> PythonFrame | None:
    """The function of a framework that the program called and that made reads, where its folder
    made most of them."""
    waits, host = host_waits(trace), trace.host_ops
    if host is None:
        return None
    reads = waits.host_op[waits.rows(WaitReason.VALUE)]
    act = called_by_program(trace)[reads]
    names, counts = np.unique(host["name"][act[act < len(host)]], return_counts=True)
    seen: Counter[PythonFrame] = Counter()
    for name, count in zip(names.tolist(), counts.tolist(), strict=True):
        if frame := frame_of(trace.names[name]):
            seen[frame] += count
    folders: Counter[str] = Counter()
    for frame, count in seen.items():
        folders[frame.file.rpartition("/")[0]] += count
    folder, most = max(folders.items(), key=lambda item: item[1], default=("", 0))
    if 2 * most < len(reads) or not most:
        return None
    mine = {f: n for f, n in seen.items() if f.file.rpartition("/")[0] == folder}
    return max(mine, key=mine.__getitem__)
