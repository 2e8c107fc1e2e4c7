import numpy as np

from builders import TraceBuilder
from pinchpoint.analysis.steps.in_steps import (
    device_ops_in_steps,
    judged_steps,
    per_step,
    rows_in_steps,
)


def two_steps():
    b = TraceBuilder()
    for i in range(4):
        b.step(i, i * 100, 100)
        b.launch(i * 100 + 10, 5, "work", i * 100 + 20, 60)
    return b


def test_operations_belong_to_the_step_that_issued_them():
    trace = two_steps().trace()
    assert device_ops_in_steps(trace).sum() == len(judged_steps(trace))
    assert per_step(trace, 12.0) == 12.0 / len(judged_steps(trace))


def test_what_runs_before_the_first_recorded_call_was_issued_before_the_recording():
    b = two_steps()
    earlier = {"device": 0, "stream": 7, "kind": 1, "name": "earlier"}
    b.add("device_ops", start_ns=2, duration_ns=10, **earlier)
    b.add("device_ops", start_ns=185, duration_ns=10, **earlier | {"name": "later"})
    trace = b.trace()
    inside = device_ops_in_steps(trace)
    names = [trace.text(trace.device_ops, "name", i) for i in range(len(inside)) if inside[i]]
    assert "earlier" not in names
    assert "later" in names


def test_what_lies_between_steps_belongs_to_the_one_before():
    b = TraceBuilder()
    for i in range(4):
        b.step(i, i * 100, 60)
        b.launch(i * 100 + 10, 5, "work", i * 100 + 20, 30)
    found = judged_steps(b.trace())
    assert found.step_of(np.array([50, 100, 170, 250, 350, 399])).tolist() == [-1, 0, 0, 1, 2, -1]


def test_rows_are_those_that_start_inside():
    b = two_steps()
    b.op("before", 5, 500)
    b.op("inside", 205, 900)
    trace = b.trace()
    rows = np.flatnonzero(rows_in_steps(trace, trace.host_ops))
    names = [trace.text(trace.host_ops, "name", r) for r in rows]
    assert "inside" in names
    assert "before" not in names


def test_without_anything_there_is_no_step_to_divide_by():
    trace = TraceBuilder().trace(device_ops=None)
    assert not len(device_ops_in_steps(trace))
    assert per_step(trace, 12.0) == 12.0
