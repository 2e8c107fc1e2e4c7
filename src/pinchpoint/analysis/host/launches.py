"""What the host asked of the device, in order: the common ground of steps, queue and gaps."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.timeline import host_rows
from pinchpoint.frozen import dataclass
from pinchpoint.trace import ApiKind, HostKind, Table, Trace, once_per_trace
from pinchpoint.trace import intervals as iv
from pinchpoint.trace.arrays import Ints, Mask, Rows

NOBODY = -1  # position of a thread or row that is not there, in arrays of this package only

# From the return of a call to the start of its work on an idle device: 24 µs at most on the devices
# of the corpus. Beyond this, something that was not recorded held the device up.
SLOWEST_START_NS = 100_000


@dataclass(frozen=True, eq=False)
class Issued:
    """When and by whom each row of ``device_ops`` was issued; arrays of its length.

    ``linked`` is False where the file does not say which call started the operation; there
    ``start_ns`` and ``end_ns`` are the start on the device, and ``thread`` is NOBODY.
    """

    linked: Mask
    call: Rows  # row of api_calls, NOBODY where not linked
    start_ns: Ints
    end_ns: Ints
    thread: NDArray[np.int32]


@once_per_trace
def issued(trace: Trace) -> Issued:
    """The call behind every device operation."""
    ops = trace.device_ops
    if ops is None:
        nothing = np.zeros(0, np.int64)
        return Issued(nothing.astype(bool), nothing, nothing, nothing, nothing.astype(np.int32))
    calls, linked = trace.api_calls, ops.known("api_call")
    if calls is None or not len(calls) or not linked.any():
        nobody = np.broadcast_to(np.int64(NOBODY), len(ops))  # takes no memory, as all are alike
        start = ops["start_ns"]
        return Issued(np.zeros(len(ops), np.bool_), nobody, start, start, nobody.astype(np.int32))
    call = np.where(linked, ops["api_call"], NOBODY).astype(np.int64)
    start, end = ops["start_ns"].copy(), ops["start_ns"].copy()
    thread = np.full(len(ops), NOBODY, np.int32)
    start[linked] = calls["start_ns"][call[linked]]
    end[linked] = calls.end_ns[call[linked]]
    thread[linked] = calls["thread"][call[linked]]
    return Issued(linked, call, start, end, thread)


@once_per_trace
def of_own_process(trace: Trace) -> Mask:
    """For each of ``threads`` whether it is in the process of the main thread."""
    main = main_thread(trace)
    if main == NOBODY:
        return np.ones(len(trace.threads), np.bool_)
    process = trace.threads[main].process
    return np.array([thread.process == process for thread in trace.threads], np.bool_)


@once_per_trace
def own_work(trace: Trace) -> Mask:
    """The rows of ``device_ops`` that the process of the main thread issued; mostly all.

    One file can hold several processes, each with devices of its own. An operation without a call
    belongs to the process whose operations alone are linked on its device. What has no call and
    ended longer before the host's recording began than that lasts is not of the recording: a stray
    kernel would stretch it.
    """
    ops, calls, by = trace.device_ops, trace.api_calls, issued(trace)
    everything = np.ones(len(by.call), np.bool_)
    if ops is None or calls is None or not by.linked.any():
        return everything
    everything &= by.linked | (ops.end_ns >= _long_before(trace))
    inside = of_own_process(trace)
    if inside[calls["thread"]].all():
        return everything
    mine = np.zeros(len(ops), np.bool_)
    mine[by.linked] = inside[by.thread[by.linked]]
    device = ops["device"]
    ours, theirs = device[by.linked & mine], device[by.linked & ~mine]
    others = np.isin(device, ours) & ~np.isin(device, theirs)
    return everything & np.where(by.linked, mine, others)


def _long_before(trace: Trace) -> int:
    tables = [t for t in (trace.host_ops, trace.api_calls) if t is not None and len(t)]
    begins = min(int(rows["start_ns"].min()) for rows in tables)
    return 2 * begins - max(int(rows.end_ns.max()) for rows in tables)


@once_per_trace
def main_thread(trace: Trace) -> int:
    """The thread that runs the steps; NOBODY if the trace has no host rows.

    The thread with the markers; else the one with most launches; else the one with most time in
    operators, of those that run Python where any of these computes itself; else, as with JAX, whose
    operators run on threads of their own, the one with most time in Python. The autograd thread may
    launch more than the thread that called it, so launches count for a thread only if it also runs
    annotations or Python, where any thread does.
    """
    if trace.steps is not None and len(trace.steps):
        return _most_common(trace.steps["thread"])
    host, calls = trace.host_ops, trace.api_calls
    if host is not None and len(host):
        leads = np.isin(host["kind"], (HostKind.PYTHON, HostKind.MODULE, HostKind.ANNOTATION))
        leads &= host["thread"] >= 0
        leaders = np.unique(host["thread"][leads])
        launching = _launching(calls)
        among = launching[np.isin(launching, leaders)]
        if len(among):
            return _most_common(among)
        if len(launching):
            return _most_common(launching)
        operators = host["kind"] == HostKind.OPERATOR
        if not operators.any():
            operators = host["kind"] != HostKind.OVERHEAD
        python = np.isin(host["kind"], (HostKind.PYTHON, HostKind.MODULE))
        leading = np.isin(host["thread"], np.unique(host["thread"][python])) & operators
        chosen = leading if leading.any() else python if python.any() else operators
        return _heaviest(host["thread"][chosen], host["duration_ns"][chosen])
    launching = _launching(calls)
    return _most_common(launching) if len(launching) else NOBODY


def _launching(calls: Table | None) -> NDArray[np.int32]:
    if calls is None:
        return np.zeros(0, np.int32)
    starts_work = (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH, ApiKind.COPY, ApiKind.MEMSET)
    found: NDArray[np.int32] = calls["thread"][np.isin(calls["kind"], starts_work)]
    return found


def _most_common(values: NDArray[np.int32]) -> int:
    which, counts = np.unique(values, return_counts=True)
    return int(which[np.argmax(counts)])


def _heaviest(threads: NDArray[np.int32], weight: Ints) -> int:
    if not len(threads):
        return NOBODY
    return int(np.argmax(np.bincount(threads, weights=weight)))


# ------------------------------------------------------------------------------------------------
# Calls in which the host waited while the device worked.
#
# Synchronising calls are meant to. Copies of ordinary memory, freeing memory, and every launch
# under CUDA_LAUNCH_BLOCKING wait as well: they return only when the device is done.


SYNCHRONISING = (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT, ApiKind.FREE)
SHORT_CALL_NS = 20_000  # a launch or copy that returns sooner waited for nothing
RETURNS_WITHIN_NS = 20_000  # of the end of its own operation: it waited for it


@dataclass(frozen=True, eq=False)
class WaitingCalls:
    """Calls that waited for the device, in order of their ends."""

    row: Ints  # of host_rows
    start_ns: Ints
    end_ns: Ints
    lost_ns: Ints  # time in the call during which the device worked


@once_per_trace
def waits(trace: Trace) -> WaitingCalls:
    """Every call in which the host waited for a working device, and how long."""
    calls, ops = trace.api_calls, trace.device_ops
    if calls is None or ops is None or not len(calls) or not len(ops):
        none = np.zeros(0, np.int64)
        return WaitingCalls(none, none, none, none)
    waiting = np.isin(calls["kind"], SYNCHRONISING) | _waits_for_its_own(trace)
    waiting &= of_own_process(trace)[calls["thread"]]
    row = np.flatnonzero(waiting)
    start, end = calls["start_ns"][row], calls.end_ns[row]
    own = own_work(trace)
    busy = iv.flatten(ops["start_ns"][own], ops.end_ns[own])
    lost = iv.covered_before(busy, end) - iv.covered_before(busy, start)
    order = np.argsort(end, kind="stable")
    order = order[lost[order] > 0]
    first = host_rows(trace).operators
    return WaitingCalls(row[order] + first, start[order], end[order], lost[order])


def _waits_for_its_own(trace: Trace) -> Mask:
    """Long launches and copies that return when their operation is done."""
    calls, ops, by = trace.api_calls, trace.device_ops, issued(trace)
    assert calls is not None
    assert ops is not None
    done = np.zeros(len(calls), np.int64)
    np.maximum.at(done, by.call[by.linked], ops.end_ns[by.linked])
    late = (done > calls["start_ns"]) & (done <= calls.end_ns + RETURNS_WITHIN_NS)
    result: Mask = late & (calls["duration_ns"] > SHORT_CALL_NS)
    return result


# ------------------------------------------------------------------------------------------------
# Launches that loaded the code of their kernel.
#
# Drivers load a kernel's code when it is first launched (CUDA does since 11.7, unless
# ``CUDA_MODULE_LOADING`` says otherwise; HIP always did). A program that runs once spends most of
# its time on that.


# A launch takes 2 to 20 µs on every host in the corpus, and loading code reads a file: the quickest
# loads there take 4 ms, and a host that is merely descheduled is back within a millisecond or so.
SHORTEST_LOAD_NS = 2_000_000


@once_per_trace
def loading_calls(trace: Trace) -> NDArray[np.bool_]:
    """The rows of ``api_calls`` that first launched a kernel, and took far longer than a launch."""
    calls, ops, by = trace.api_calls, trace.device_ops, issued(trace)
    found = np.zeros(0 if calls is None else len(calls), np.bool_)
    if calls is None or ops is None or not by.linked.any():
        return found
    linked = np.flatnonzero(by.linked)
    order = linked[np.argsort(by.start_ns[linked], kind="stable")]
    _, first = np.unique(ops["name"][order], return_index=True)
    found[by.call[order[first]]] = True
    found &= (calls["kind"] == ApiKind.LAUNCH) & (calls["duration_ns"] >= SHORTEST_LOAD_NS)
    return found
