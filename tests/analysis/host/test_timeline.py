import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders import TraceBuilder
from pinchpoint.analysis.host.timeline import NO_ROW, host_rows, look_up, timelines
from pinchpoint.trace import ApiKind, HostKind


def owners(trace, thread=0):
    """(from, name) of each piece of a thread."""
    line, rows = timelines(trace)[thread], host_rows(trace)
    names = [None if r == NO_ROW else trace.names[rows.name[r]] for r in line.row.tolist()]
    return list(zip(line.at_ns.tolist(), names, strict=True))


def test_each_instant_belongs_to_the_innermost_row():
    b = TraceBuilder()
    b.python("train.py(3): step", 0, 100)
    b.op("aten::linear", 10, 50)
    b.op("aten::addmm", 20, 30)
    b.launch(30, 5, "gemm", 200, 10)
    assert owners(b.trace()) == [
        (0, "train.py(3): step"),
        (10, "aten::linear"),
        (20, "aten::addmm"),
        (30, "cudaLaunchKernel"),
        (35, "aten::addmm"),
        (50, "aten::linear"),
        (60, "train.py(3): step"),
        (100, None),
    ]


def test_rows_that_begin_and_end_together_nest_in_order():
    b = TraceBuilder()
    b.op("outer", 0, 10)
    b.op("inner", 0, 10)
    b.op("next", 10, 5)
    assert owners(b.trace()) == [(0, "inner"), (10, "next"), (15, None)]


def test_rows_without_length_and_the_profilers_own_rows_leave_no_piece():
    b = TraceBuilder()
    b.op("outer", 0, 10)
    b.op("moment", 5, 0)
    b.op("Activity Buffer Request", 2, 3, kind=HostKind.OVERHEAD, parent=None)
    assert owners(b.trace()) == [(0, "outer"), (10, None)]


def test_a_child_that_sticks_out_is_clipped():
    b = TraceBuilder()
    b.op("outer", 0, 10)
    b.op("child", 5, 6, parent=0)
    trace = b.trace()
    assert owners(trace) == [(0, "outer"), (5, "child"), (10, None)]
    assert host_rows(trace).end_ns.tolist() == [10, 10]


def test_threads_are_apart():
    b = TraceBuilder()
    other = b.thread("autograd")
    b.op("forward", 0, 10)
    b.op("backward", 5, 10, thread=other)
    trace = b.trace()
    assert owners(trace) == [(0, "forward"), (10, None)]
    assert owners(trace, other) == [(5, "backward"), (15, None)]


def test_looking_up_spans_fills_them():
    b = TraceBuilder()
    b.op("a", 10, 10)
    b.op("b", 30, 10)
    found = look_up(timelines(b.trace())[0], np.array([0, 15, 35]), np.array([5, 35, 60]))
    assert found.asked.tolist() == [0, 1, 1, 1, 2, 2]
    assert found.start_ns.tolist() == [0, 15, 20, 30, 35, 40]
    assert found.end_ns.tolist() == [5, 20, 30, 35, 40, 60]
    assert found.row.tolist() == [NO_ROW, 0, NO_ROW, 1, 1, NO_ROW]


def test_a_thread_without_rows_gives_the_spans_themselves():
    found = look_up(None, np.array([3]), np.array([9]))
    assert (found.start_ns.tolist(), found.end_ns.tolist(), found.row.tolist()) == ([3], [9], [-1])


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), min_size=1, max_size=8)


@given(spans, st.integers(0, 50), st.integers(0, 20))
def test_pieces_fill_any_span_exactly(rows, start, length):
    b = TraceBuilder()
    for i, (at, takes) in enumerate(rows):
        b.op(f"op{i}", at, takes)
        b.api("cudaEventQuery", at, takes // 2, kind=ApiKind.QUERY)
    line = timelines(b.trace()).get(0)
    found = look_up(line, np.array([start]), np.array([start + length]))
    edges = [*found.start_ns.tolist(), start + length] if len(found.row) else []
    assert edges[1:] == found.end_ns.tolist()
    assert edges[:1] == ([start] if len(found.row) else [])
    assert int((found.end_ns - found.start_ns).sum()) == length


def test_a_step_that_begins_in_a_hook_of_the_optimizer_goes_on_when_the_optimizer_ends():
    b = TraceBuilder()
    for at in (0, 100, 200):
        b.step(at // 100, at, 100)
        b.annotation("Optimizer.step#Adam.step", at + 80, 25)  # its hook begins the next step
        b.op("aten::linear", at + 60, 10)
    trace = b.trace()
    found = look_up(timelines(trace)[0], np.array([100]), np.array([200]))
    names = [trace.names[host_rows(trace).name[row]] for row in found.row.tolist()]
    spans = list(zip(names, found.start_ns.tolist(), found.end_ns.tolist(), strict=True))
    assert spans == [
        ("ProfilerStep#1", 100, 160),
        ("aten::linear", 160, 170),
        ("ProfilerStep#1", 170, 180),
        ("Optimizer.step#Adam.step", 180, 200),
    ]


def test_ranges_that_cross_leave_what_is_around_both():
    b = TraceBuilder()
    b.python("train.py(9): main", 0, 100)
    b.annotation("first", 10, 30)
    b.annotation("second", 20, 40)
    trace = b.trace()
    found = look_up(timelines(trace)[0], np.array([0]), np.array([100]))
    names = [trace.names[host_rows(trace).name[row]] for row in found.row.tolist()]
    assert names == ["train.py(9): main", "first", "second", "train.py(9): main"]
    assert found.end_ns.tolist() == [10, 20, 60, 100]


def test_what_a_call_asks_the_operating_system_for_is_inside_of_that_call():
    b = TraceBuilder()
    b.op("range", 0, 100, kind=HostKind.ANNOTATION)
    b.api("cudaFree", 10, 50, kind=ApiKind.FREE)
    b.op("ioctl", 20, 10, kind=HostKind.OS_CALL)
    b.op("read", 70, 10, kind=HostKind.OS_CALL)
    assert owners(b.trace()) == [
        (0, "range"), (10, "cudaFree"), (20, "ioctl"), (30, "cudaFree"), (60, "range"),
        (70, "read"), (80, "range"), (100, None),
    ]  # fmt: skip
