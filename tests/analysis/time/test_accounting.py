import numpy as np
import pytest

from builders import TraceBuilder
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.trace import ApiKind, DeviceKind, HostKind
from pinchpoint.trace.kinds import UNRECORDED_WAIT


def told(trace):
    found = breakdown(trace)
    return {part.id: int(ns) for part, ns in zip(found.parts, found.ns_per_step, strict=True)}


def exact(trace):
    found, windows = breakdown(trace), steps(trace)
    assert int(found.ns_per_step.sum()) == windows.typical_ns
    assert np.array_equal(found.by_step.sum(axis=1), windows.end_ns - windows.start_ns)
    return found


def training(steps_ns=(100, 101, 103)):
    """Steps with 40 ns of matrix product, 10 of exposed collective, the rest a late host."""
    b, at = TraceBuilder(), 0
    for number, length in enumerate((100, *steps_ns)):
        b.step(number, at, length)
        b.launch(at + length - 60, 5, "cutlass_gemm", at + length - 55, 40)
        b.launch(
            at + length - 50,
            5,
            "ncclDevKernel_AllReduce",
            at + length - 35,
            30,
            stream=20,
            kind=DeviceKind.COLLECTIVE,
        )
        at += length
    return b.trace()


def test_the_parts_of_a_step():
    assert told(training((100,) * 4)) == {
        "idle-unrecorded": 45,  # nothing but marks and calls of the host is in the file
        "gemm": 40,
        "exposed-communication": 10,
        "idle-dispatch": 5,
    }


def test_parts_add_up_exactly_though_means_are_rounded():
    found = exact(training((100, 101, 103, 101, 100, 102)))
    assert found.of_group("device") == 40
    assert found.of_part("exposed-communication") == 10
    assert found.of_part("no-such-part") == 0


def test_most_time_comes_first():
    found = breakdown(training())
    assert np.all(np.diff(found.ns_per_step) <= 0)


def test_a_recording_of_the_host_alone_is_accounted_by_what_its_thread_did():
    b = TraceBuilder()
    for i in range(3):
        b.step(i, i * 100, 100)
        b.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", i * 100, 30)
        b.op("aten::linear", i * 100 + 40, 30)
        b.op("aten::addmm", i * 100 + 45, 20)
    trace = b.trace(api_calls=None, device_ops=None)
    exact(trace)
    assert told(trace) == {"host-python": 40, "host-data": 30, "host-gemm": 30}


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        ("array.py(615): _value", {"host-elsewhere": 60, "host-wait": 20, "host-python": 20}),
        ("train.py(9): features", {"host-python": 100}),
    ],
    ids=["waits for its result", "runs Python meanwhile"],
)
def test_a_program_that_waits_for_its_array_is_where_other_threads_compute_it(function, parts):
    b = TraceBuilder()
    pool = b.thread("worker")
    for number in range(4):
        b.step(number, 100 * number, 100)
        b.python(function, 100 * number + 10, 80)
        b.op("dot", 100 * number + 20, 60, thread=pool)
    assert told(b.trace(api_calls=None, device_ops=None)) == parts


@pytest.mark.parametrize(
    "waits",
    ["array.py(615): _value", "ThunkExecutor::Execute (wait for completion)", UNRECORDED_WAIT],
)
def test_waits_for_compiled_programs_are_theirs_where_no_thread_shows_anything(waits):
    b = TraceBuilder()
    pool = b.thread("worker")
    for number in range(4):
        b.step(number, 100 * number, 100)
        b.python("train.py(9): step", 100 * number, 100)
        b.op(waits, 100 * number + 10, 80, kind=HostKind.ANNOTATION)
        b.op("dot", 100 * number + 20, 60, thread=pool)
        b.add("compiled_ops", op="dot", start_ns=100 * number + 20, duration_ns=60)
    parts = told(b.trace(api_calls=None, device_ops=None))
    assert parts == {"host-elsewhere": 60, "host-awaited": 20, "host-python": 20}


def test_a_device_that_did_nothing_leaves_the_host():
    b = TraceBuilder()
    b.op("aten::mm", 0, 50)
    b.api("cudaEventQuery", 60, 40, kind=ApiKind.QUERY)
    assert exact(b.trace()).of_group("host") == steps(b.trace()).typical_ns


def test_a_trace_without_events_has_no_parts():
    found = breakdown(TraceBuilder().trace())
    assert found.parts == ()
    assert found.typical_ns is None


def test_a_step_without_length_has_no_parts():
    b = TraceBuilder()
    b.step(1, 5, 0)
    found = exact(b.trace())
    assert found.parts == ()
    assert found.typical_ns == 0
