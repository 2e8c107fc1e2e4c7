from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import TraceBuilder
from pinchpoint.analysis.host.timeline import host_rows
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.analysis.time.gaps import gaps
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.analysis.time.idle_pieces import IdlePieces, cut
from pinchpoint.trace import ApiKind, DeviceKind, HostKind, MemoryKind, RunFacts
from pinchpoint.trace import intervals as iv

US = 1000


def causes(trace):
    """(kind, µs, responsible name) of each piece in order."""
    found, rows = gaps(trace), host_rows(trace)
    names = [trace.names[rows.name[r]] if r >= 0 else None for r in found.row.tolist()]
    return [
        (GapKind(k), ns // US, name)
        for k, ns, name in zip(found.kind.tolist(), found.duration_ns.tolist(), names, strict=True)
    ]


class Recording(TraceBuilder):
    """Times in µs; one step marker around everything, so that all gaps are inside a window."""

    def kernel(self, call_at, takes, runs_at, lasts, **more):
        return self.launch(call_at * US, takes * US, "k", runs_at * US, lasts * US, **more)

    def row(self, name, at, takes, **more):
        return self.op(name, at * US, takes * US, **more)

    def call(self, name, at, takes, kind, **more):
        return self.api(name, at * US, takes * US, kind=kind, **more)

    def done(self, lasts):
        self.step(1, 0, lasts * US)
        return self.trace()


def test_a_late_launch_is_what_the_host_did_instead_then_the_call_then_the_start():
    b = Recording()
    b.kernel(0, 5, 0, 100)
    b.row("aten::mm", 150, 45)
    b.kernel(180, 10, 195, 105)
    assert causes(b.done(300)) == [
        (GapKind.PYTHON, 50, "ProfilerStep#1"),
        (GapKind.DISPATCH, 30, "aten::mm"),
        (GapKind.DISPATCH, 10, "cudaLaunchKernel"),
        (GapKind.START_LATENCY, 5, "cudaLaunchKernel"),
    ]


def test_issued_in_time_is_start_latency_or_a_dependency():
    b = Recording()
    b.kernel(0, 5, 0, 100)
    b.kernel(10, 5, 102, 98)
    b.kernel(20, 5, 250, 50)
    assert causes(b.done(300)) == [
        (GapKind.START_LATENCY, 2, "cudaLaunchKernel"),
        (GapKind.DEPENDENCY, 50, "cudaLaunchKernel"),
    ]


def test_idle_after_a_sync_belongs_to_the_sync_up_to_what_it_cost():
    b = Recording()
    b.kernel(0, 5, 0, 100)
    b.call("cudaStreamSynchronize", 70, 35, ApiKind.SYNC_STREAM)  # 30 µs lost, returns 5 late
    b.python("train.py(3): work", 105 * US, 195 * US)
    b.kernel(180, 10, 190, 110)
    assert causes(b.done(300)) == [
        (GapKind.SYNC, 5, "cudaStreamSynchronize"),
        (GapKind.AFTER_SYNC, 30, "cudaStreamSynchronize"),
        (GapKind.PYTHON, 45, "train.py(3): work"),
        (GapKind.DISPATCH, 10, "cudaLaunchKernel"),
    ]


def test_what_a_sync_cost_is_claimed_only_once():
    b = Recording()
    b.kernel(0, 5, 0, 100)
    b.call("cudaStreamSynchronize", 70, 30, ApiKind.SYNC_STREAM)
    b.kernel(120, 0, 120, 10)  # 20 of 30 µs
    b.kernel(180, 0, 180, 120)  # the other 10, then 40 of the host's own
    assert [(kind, us) for kind, us, _ in causes(b.done(300))] == [
        (GapKind.AFTER_SYNC, 20),
        (GapKind.AFTER_SYNC, 10),
        (GapKind.UNRECORDED, 40),
    ]


def test_two_syncs_in_a_row_leave_the_cost_with_the_one_that_waited():
    b = Recording()
    b.kernel(0, 5, 0, 100)
    b.call("cudaDeviceSynchronize", 50, 50, ApiKind.SYNC_DEVICE)
    b.copy(
        101 * US,
        1 * US,
        "Memcpy DtoH (Device -> Pinned)",
        103 * US,
        1 * US,
        size=4,
        source=MemoryKind.DEVICE,
        target=MemoryKind.PINNED,
    )
    b.call("cudaStreamSynchronize", 102, 3, ApiKind.SYNC_STREAM)
    b.kernel(140, 0, 140, 160)
    found = causes(b.done(300))
    assert found[-1] == (GapKind.AFTER_SYNC, 35, "cudaDeviceSynchronize")


def test_a_slow_loader_after_a_sync_stays_the_loaders():
    b = Recording()
    b.kernel(0, 5, 0, 100)
    b.call("cudaStreamSynchronize", 10, 90, ApiKind.SYNC_STREAM)
    b.python("torch/utils/data/dataloader.py(7): __next__", 100 * US, 80 * US)
    b.kernel(180, 0, 180, 120)
    assert causes(b.done(300)) == [
        (GapKind.DATA, 80, "torch/utils/data/dataloader.py(7): __next__")
    ]


def test_the_caller_of_backward_is_seen_through_to_the_autograd_thread():
    b = Recording()
    autograd = b.thread("autograd")
    b.kernel(0, 5, 0, 100)
    b.python("<built-in method run_backward of X>", 90 * US, 110 * US)
    b.row("MmBackward0", 130, 50, thread=autograd)
    b.kernel(210, 0, 210, 90)
    assert causes(b.done(300)) == [
        (GapKind.AUTOGRAD, 30, "<built-in method run_backward of X>"),
        (GapKind.DISPATCH, 50, "MmBackward0"),
        (GapKind.AUTOGRAD, 20, "<built-in method run_backward of X>"),
        (GapKind.PYTHON, 10, "ProfilerStep#1"),
    ]


def test_a_launch_by_the_autograd_thread_was_late_because_of_its_caller():
    b = Recording()
    autograd = b.thread("autograd")
    b.kernel(0, 5, 0, 100)
    b.python("train.py(3): loss", 100 * US, 60 * US)
    b.python("<built-in method run_backward of X>", 160 * US, 130 * US)
    b.row("MmBackward0", 180, 50, thread=autograd)
    b.kernel(200, 0, 200, 100, thread=autograd)
    assert causes(b.done(300)) == [
        (GapKind.PYTHON, 60, "train.py(3): loss"),
        (GapKind.AUTOGRAD, 20, "<built-in method run_backward of X>"),
        (GapKind.DISPATCH, 20, "MmBackward0"),
    ]


def test_the_profilers_own_pauses_are_laid_over():
    b = Recording()
    b.kernel(0, 5, 0, 100)
    b.row("aten::mm", 100, 100)
    b.row("Activity Buffer Request", 120, 30, kind=HostKind.OVERHEAD, parent=None)
    b.row("Runtime Triggered Module Loading", 160, 10, kind=HostKind.OVERHEAD, parent=None)
    b.row("Buffer Flush", 180, 10, kind=HostKind.OVERHEAD, parent=None)
    b.kernel(200, 0, 200, 100)
    assert [(kind, us) for kind, us, _ in causes(b.done(300))] == [
        (GapKind.DISPATCH, 20),
        (GapKind.PROFILER, 30),
        (GapKind.DISPATCH, 10),
        (GapKind.CODE_LOAD, 10),
        (GapKind.DISPATCH, 30),
    ]


def test_an_operation_without_a_call_is_explained_by_the_main_thread():
    b = Recording()
    b.kernel(0, 5, 0, 100)
    b.row("aten::mm", 100, 50)
    b.add(
        "device_ops",
        name="lost",
        kind=DeviceKind.KERNEL,
        start_ns=200 * US,
        duration_ns=100 * US,
        device=0,
    )
    assert causes(b.done(300)) == [
        (GapKind.DISPATCH, 50, "aten::mm"),
        (GapKind.PYTHON, 50, "ProfilerStep#1"),
    ]


def test_graph_launches_and_memory_calls_speak_for_themselves():
    b = Recording()
    b.kernel(0, 5, 0, 100)
    b.call("cudaMalloc", 100, 40, ApiKind.MALLOC)
    launch = b.call("cudaGraphLaunch", 140, 20, ApiKind.GRAPH_LAUNCH)
    b.add(
        "device_ops",
        name="node",
        kind=DeviceKind.KERNEL,
        start_ns=160 * US,
        duration_ns=140 * US,
        device=0,
        correlation=launch["correlation"],
    )
    assert [(kind, us) for kind, us, _ in causes(b.done(300))] == [
        (GapKind.MALLOC, 40),
        (GapKind.GRAPH_LAUNCH, 20),
    ]


def test_a_gap_that_spans_two_steps_is_cut_at_the_border():
    b = TraceBuilder()
    b.step(1, 0, 200)
    b.step(2, 200, 200)
    b.launch(0, 5, "a", 10, 90)
    b.launch(300, 5, "b", 305, 95)
    found = gaps(b.trace())
    assert found.step.tolist() == [0, 0, 0, 1, 1]
    assert found.gap.tolist() == [0, 0, 1, 1, 1]
    assert found.start_ns.tolist() == [0, 5, 100, 200, 300]


def test_without_device_work_there_are_no_gaps():
    b = TraceBuilder()
    b.op("aten::mm", 0, 10)
    assert len(gaps(b.trace())) == 0


def test_operations_without_length_end_no_gap():
    b = TraceBuilder()
    b.step(1, 0, 100)
    b.launch(0, 5, "nothing", 50, 0)
    assert gaps(b.trace()).duration_ns.sum() == 100


calls = st.tuples(
    st.integers(0, 300),  # call
    st.integers(0, 20),  # takes
    st.integers(0, 60),  # starts later
    st.integers(0, 50),  # lasts
    st.sampled_from(["launch", "sync", "unlinked"]),
    st.integers(0, 1),  # thread
)


@given(st.lists(calls, min_size=1, max_size=10), st.lists(st.integers(1, 80), max_size=5))
def test_pieces_fill_the_idle_time_of_the_windows_exactly(rows, lengths):
    b = TraceBuilder()
    b.thread("second")
    at = 0
    for number, length in enumerate(lengths):
        b.step(number, at, length)
        at += length
    for call_at, takes, later, lasts, what, thread in rows:
        if what == "sync":
            b.api("cudaDeviceSynchronize", call_at, takes, kind=ApiKind.SYNC_DEVICE, thread=thread)
        elif what == "launch":
            b.launch(call_at, takes, "k", call_at + later, lasts, thread=thread)
        else:
            b.add(
                "device_ops",
                name="u",
                kind=DeviceKind.KERNEL,
                start_ns=call_at,
                duration_ns=lasts,
                device=0,
            )
    trace = b.trace()
    windows, found, ops = steps(trace), gaps(trace), trace.device_ops
    told = breakdown(trace)
    if len(windows):
        assert int(told.ns_per_step.sum()) == windows.typical_ns
        assert np.array_equal(told.by_step.sum(axis=1), windows.end_ns - windows.start_ns)
    assert np.all(found.duration_ns > 0)
    assert np.all(found.start_ns[1:] >= found.end_ns[:-1])
    if not len(ops) or not len(windows):
        return
    idle = iv.complement(
        iv.flatten(ops["start_ns"], ops.end_ns),
        int(windows.start_ns[0]),
        int(windows.end_ns[-1]),
    )
    assert int(found.duration_ns.sum()) == idle.total
    assert iv.flatten(found.start_ns, found.end_ns).total == idle.total
    assert np.all(found.start_ns >= windows.start_ns[found.step])
    assert np.all(found.end_ns <= windows.end_ns[found.step])


def served(frames=()):
    """A step that launches twice, with 80 µs between; what the host did there has these frames."""
    r = Recording()
    r.row("ProfilerStep#1", 0, 100, kind=HostKind.ANNOTATION)
    r.row("aten::mm", 1, 3)
    r.kernel(2, 1, 5, 5)
    for name, at, takes in frames:
        r.row(name, at, takes, kind=HostKind.PYTHON)
    r.kernel(90, 2, 95, 5)
    return r.done(100)


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ((("queue.py(154): get", 10, 75),), GapKind.WAIT),
        ((("pad.py(3): pad", 10, 75),), GapKind.PYTHON),
        ((("queue.py(154): get", 10, 35), ("pad.py(3): pad", 46, 40)), GapKind.PYTHON),
        ((), GapKind.PYTHON),
    ],
    ids=["waits", "computes", "both", "no names"],
)
def test_a_window_without_frames_waits_where_the_one_with_names_does(frames, kind):
    of_the_run = replace(served(), run=RunFacts(named=served(frames)))
    idle = {k: ns for k, ns, _ in causes(of_the_run) if ns > 50}
    assert list(idle) == [kind]


def test_no_idle_time_is_cut_nowhere_even_before_the_beginning():
    nothing = IdlePieces(*(np.zeros(0, np.int64) for _ in range(5)))
    assert cut(nothing, np.array([-9, 0, 9])) is nothing
