"""Where the launching thread stood still: work that usually takes microseconds took milliseconds.

A thread that has lost its core or the interpreter's lock leaves no event. What shows is an operator
or call, or the way from one to the next, that took a thousand times longer than the same one
elsewhere, while the thread waited for nothing on the device.
"""

from collections.abc import Iterable

import numpy as np

from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.analysis.host.frames import frames_for_readers
from pinchpoint.analysis.host.launches import issued, main_thread
from pinchpoint.analysis.host.timeline import NO_ROW, host_rows, look_up, timelines
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.analysis.time.host_waits import READING, SYNCHRONISING
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import ApiKind, HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask, Rows, distinct
from pinchpoint.trace.intervals import Intervals, covered_before, flatten
from pinchpoint.trace.names import rows_named

# A scheduler's slice is 1 to 4 ms, the interpreter's switch interval 5 ms: work between two events
# of a launching thread takes microseconds.
LEAST_STALL_NS = 1_000_000
FAR_LONGER = 50  # times the quickest tenth; 10 to 200 find the same in labelled recordings
SWITCH_INTERVAL_NS = 5_100_000  # sys.getswitchinterval() is 5 ms; 0.1 ms to wake up was seen
# fitted: a program on too few cores beside one whose threads fight for the lock. A twentieth loses
# stalls of the first, a half takes lock waits of the second for stalls.
RARE_RATIO = 0.1
FEWEST_ALIKE = 10  # so that a single odd one can be rare
# fitted: the same two; a fifth takes stalls of the first for lock waits.
NEAR_RATIO = 0.12
# Between a holder's last event and a waiter's next one lie a wake-up (50 to 100 µs) and two events.
RELEASED_NS = 200_000
HELD_RATIO = (
    0.8  # of a stall inside one run of the holder: chance overlaps do not also end together
)
SEVERAL = 3  # operations that end: one may end by chance, the next one makes the awaited place
MOSTLY_RATIO = 0.6  # a clear majority; 0.3 to 0.9 answer alike in labelled recordings
_OWN_WORK = (
    GapKind.DISPATCH,
    GapKind.HOST_COMPUTE,
    GapKind.PYTHON,
    GapKind.UNRECORDED,
    GapKind.GRAPH_LAUNCH,
)
_RETURNING = (
    ApiKind.LAUNCH,
    ApiKind.MEMSET,
    ApiKind.EVENT_RECORD,
    ApiKind.STREAM_WAIT,
    ApiKind.QUERY,
)
_WAITS = regex(
    r"method (acquire|poll|select|recv\w*|read\w*|wait|join|accept|get) of |function (sleep|select"
    r"|read|waitpid|poll)|^<unknown> (acquire|wait|join|select|poll)$"  # the last: JAX's spelling
    r"|(threading|queues?|selectors|connection|subprocess|popen_\w+)\.py"
)


@dataclass(frozen=True, eq=False)
class Stalls:
    """Pieces of the launching thread's time that took too long, in the judged steps."""

    rows: Rows  # of host_ops: the row that was open
    end_ns: Ints
    excess_ns: Ints  # how much longer than usual, up to ``end_ns``


@once_per_trace
def stalls(trace: Trace) -> Stalls:
    """Stalls of the launching thread: its own work took far longer than the same elsewhere."""
    row, end, length = _own_work(trace, (main_thread(trace),), calls=True)
    if not len(row):
        return Stalls(row, end, length)
    usual, rows = _usual(row, length, trace), host_rows(trace)
    known = np.append(_known_work(trace), _goes_on(trace))[row] & _device_goes_on(
        trace, row, end, length
    )
    known &= ~np.append(_prepares(trace), np.zeros(len(rows.name) - rows.operators, np.bool_))[row]
    odd = (length >= LEAST_STALL_NS) & (length > FAR_LONGER * usual) & known
    stalled = np.flatnonzero(odd & _rare(row, odd, trace))
    within_row = np.where(row < rows.operators, row, rows.parent[row])[stalled]
    told = within_row != NO_ROW
    stalled = stalled[told]
    return Stalls(within_row[told], end[stalled], length[stalled] - usual[stalled])


def _goes_on(trace: Trace) -> Mask:
    """Calls that ask the device for something and return, but for the first launch of each kernel,
    which may load its code."""
    calls, ops = trace.api_calls, trace.device_ops
    if calls is None:
        return np.zeros(0, np.bool_)
    returns = np.isin(calls["kind"], _RETURNING)
    if ops is not None and len(ops):
        first = np.unique(ops["name"], return_index=True)[1]
        launching = ops.filled("api_call", -1)[first]
        returns[launching[launching >= 0]] = False
    return returns


def _prepares(trace: Trace) -> Mask:
    """Operators that launch a kernel which nothing launched before: they load its code, and a
    library may set itself up and choose an algorithm there."""
    host, calls, ops = trace.host_ops, trace.api_calls, trace.device_ops
    count = 0 if host is None else len(host)
    prepares = np.zeros(count + 1, np.bool_)
    if host is None or calls is None or ops is None or not len(ops):
        return prepares[:-1]
    first = np.unique(ops["name"], return_index=True)[1]
    launching = ops.filled("api_call", -1)[first]
    at = np.unique(calls.filled("host_op", count)[launching[launching >= 0]])
    chain = np.append(parents(host), count)
    while len(at := at[(at >= 0) & (at < count) & ~prepares[at]]):
        prepares[at] = True
        at = np.unique(chain[at])
    result: Mask = prepares[:-1] & (host["kind"] == HostKind.OPERATOR)
    return result


def _device_goes_on(trace: Trace, row: Rows, end: Ints, length: Ints) -> Mask:
    """Pieces that are no calls, or that do not wait for a place in the device's queue: several
    operations ended meanwhile, each of which makes a place, or nothing was there to do."""
    ops = trace.device_ops
    in_calls = row >= host_rows(trace).operators
    if ops is None or not len(ops) or not in_calls.any():
        return np.ones(len(row), np.bool_)
    done, busy = np.sort(ops.end_ns), flatten(ops["start_ns"], ops.end_ns)
    ended = np.searchsorted(done, end) - np.searchsorted(done, end - length)
    idle = length - (covered_before(busy, end) - covered_before(busy, end - length))
    result: Mask = ~in_calls | (ended >= SEVERAL) | (2 * idle >= length)
    return result


@once_per_trace
def lock_waits(trace: Trace) -> Stalls:
    """Stalls that end as waits for the interpreter's lock do; all that do, if most long ones do.

    A waiter asks for the lock once a switch interval, and gets it earlier if its holder begins to
    sleep or to wait: then the stall lies in one run of another thread's Python and ends with it.
    """
    row, end, length = _own_work(trace, launching_threads(trace))
    by_interval, released = _in_turns(length), _released(trace, row, end, length)
    turns = length >= (1 - NEAR_RATIO) * SWITCH_INTERVAL_NS
    if not turns.any() or by_interval[turns].mean() < MOSTLY_RATIO:
        turns[:] = False
    long = length >= LEAST_STALL_NS
    waits = long & (released | by_interval | turns)
    if length[waits].sum() < MOSTLY_RATIO * length[long].sum():
        waits = turns
    held = np.flatnonzero(waits)
    return Stalls(row[held], end[held], length[held])


def long_pieces(trace: Trace) -> Stalls:
    """Pieces of the launching threads' own work that last a switch interval or longer."""
    row, end, length = _own_work(trace, launching_threads(trace))
    long = np.flatnonzero(length >= (1 - NEAR_RATIO) * SWITCH_INTERVAL_NS)
    return Stalls(row[long], end[long], length[long])


def launching_threads(trace: Trace) -> list[int]:
    """The thread of the steps, and those that launch beside it (backward passes)."""
    by = issued(trace)
    return sorted({main_thread(trace), *distinct(by.thread[by.linked]).tolist()})


def _in_turns(length: Ints) -> Mask:
    """Pieces of about one interpreter switch interval, or of several."""
    turns = length / SWITCH_INTERVAL_NS
    whole: Mask = np.round(turns) >= 1
    return whole & (np.abs(turns - np.round(turns)) <= NEAR_RATIO * np.maximum(turns / 3, 1))


def _released(trace: Trace, row: Rows, end: Ints, length: Ints) -> Mask:
    """Pieces that lie in one run of another thread's own Python and end when it does."""
    held = np.zeros(len(row), np.bool_)
    waiting = np.append(_waiting(trace), False)[row]
    for thread, runs in _python_runs(trace).items():
        if thread == main_thread(trace) or not len(runs.start):
            continue
        at = np.maximum(np.searchsorted(runs.end, end + RELEASED_NS, "right") - 1, 0)
        late = end - runs.end[at]
        covered = np.minimum(runs.end[at], end) - np.maximum(runs.start[at], end - length)
        held |= (np.abs(late) <= RELEASED_NS) & (covered >= HELD_RATIO * length)
    released: Mask = held & ~waiting
    return released


def _own_work(
    trace: Trace, threads: Iterable[int], *, calls: bool = False
) -> tuple[Rows, Ints, Ints]:
    """Pieces of these threads' dispatching and Python in the judged steps: row (of ``host_rows``,
    with runtime calls or without), end, and length."""
    steps, found = judged_steps(trace), []
    for thread in threads:
        pieces = look_up(timelines(trace).get(thread), steps.start_ns, steps.end_ns)
        own = np.isin(activity(trace)[pieces.row], _OWN_WORK)
        own &= (pieces.row != NO_ROW) & (calls | (pieces.row < host_rows(trace).operators))
        length = (pieces.end_ns - pieces.start_ns)[own]
        found.append((pieces.row[own].astype(np.intp), pieces.end_ns[own], length))
    row, end, length = (np.concatenate(of) for of in zip(*found, strict=True))
    return row, end, length


def _known_work(trace: Trace) -> Mask:
    """Rows whose length says something: operators and built-ins, not the program's own code."""
    host = trace.host_ops
    assert host is not None
    built_in = rows_named(trace, host, lambda name: name.startswith("<built-in"))
    known: Mask = (host["kind"] == HostKind.OPERATOR) | built_in
    calls = trace.api_calls
    if calls is None or not np.isin(calls["kind"], SYNCHRONISING).any():
        # Then waits for the device lie in the operators that read from it, unmarked.
        known &= ~rows_named(trace, host, lambda name: name in READING)
    return known


def _rare(row: Rows, odd: Mask, trace: Trace) -> Mask:
    """Whether few pieces of rows with the same name are odd; else they differ by nature."""
    name = host_rows(trace).name[row]
    count = np.bincount(name)
    share = np.bincount(name, weights=odd) / np.maximum(count, 1)
    rare: Mask = (share <= RARE_RATIO)[name] & (count >= FEWEST_ALIKE)[name]
    return rare


def _usual(row: Rows, length: Ints, trace: Trace) -> Ints:
    """What the quickest tenth of the pieces of rows with the same name take."""
    names = host_rows(trace).name
    name = names[row]
    order = np.lexsort((length, name))
    first = np.flatnonzero(np.append(True, name[order][1:] != name[order][:-1]))
    count = np.diff(np.append(first, len(order)))
    quick = length[order][first + (count - 1) // 10]
    out = np.empty(len(length), np.int64)
    out[order] = np.repeat(quick, count)
    return out


def busy_python_threads(trace: Trace, least_ratio: float) -> list[int]:
    """Other threads that run the program's own Python for this share of the judged steps.

    Threads that a framework runs for itself (feeders, pinning) wait nearly all the time, and where
    they do not show that, they were stalled themselves.
    """
    steps = judged_steps(trace)
    window = int((steps.end_ns - steps.start_ns).sum())
    return [
        thread
        for thread, runs in _python_runs(trace).items()
        if thread != main_thread(trace) and runs.total >= least_ratio * window
    ]


@once_per_trace
def _python_runs(trace: Trace) -> dict[int, Intervals]:
    """When each thread runs the program's own Python in the judged steps, waiting for nothing."""
    host, steps = trace.host_ops, judged_steps(trace)
    if host is None or not len(steps):
        return {}
    inside = within(parents(host), frames_for_readers(trace))[:-1]
    runs = np.append(inside & ~_waiting(trace), False)
    found = {}
    for thread, line in timelines(trace).items():
        pieces = look_up(line, steps.start_ns, steps.end_ns)
        row = np.where(pieces.row == NO_ROW, len(host), np.minimum(pieces.row, len(host)))
        found[thread] = flatten(pieces.start_ns[runs[row]], pieces.end_ns[runs[row]])
    return found


def _waiting(trace: Trace) -> Mask:
    """Rows of ``host_ops`` that wait for something, by what they call."""
    host = trace.host_ops
    assert host is not None
    return rows_named(trace, host, lambda name: _WAITS.search(name) is not None)
