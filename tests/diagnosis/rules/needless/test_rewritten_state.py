"""Arrays that a compiled loop writes anew."""

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.diagnosis.rules.needless.rewritten_state import check
from pinchpoint.trace import Device, DeviceKind

MS = 1_000_000
ANEW = {"rewritten_at": "/code/model.py:7", "changed_ratio": 0.01}


def steps_of(*rewritten):
    """Ten steps of 10 ms: what is rewritten takes 2 ms each, other work the rest."""
    built = TraceBuilder(devices=(Device(0, "NVIDIA H100 80GB HBM3", vendor="nvidia"),))
    for number in range(10):
        at = number * 10 * MS
        built.step(number, at, 10 * MS)
        rest = 10 - 2 * len(rewritten)
        ops = [(f"op.{i}", 2, told) for i, told in enumerate(rewritten)] + [("dot.9", rest, {})]
        for op, took, more in ops:
            row = {"start_ns": at, "duration_ns": took * MS, "device": 0}
            built.add("compiled_ops", op=op, source="model.py:8, jit(f)", bytes=1, **row, **more)
            built.add("device_ops", name=op, kind=DeviceKind.KERNEL, stream=1, **row)
            at += took * MS
    return built.trace()


TAKEN = ANEW | {"carried_ratio": 0.01}
PUT_BACK = ANEW | {"carried_ratio": 1.0, "put_back_bytes": 4_000_000_000}


def test_says_what_is_written_and_what_changes():
    (found,) = check(steps_of(TAKEN, PUT_BACK))
    assert found.summary == (
        "The loop at model.py:7 writes an array back slice by slice, 4 GB a step of which 40 MB"
        " change: 4.00 ms of each recorded step in 2 operations"
    )
    assert found.location.line == 7
    assert "carry" in found.fix


def test_carrying_wins_less_where_slices_are_still_copied():
    """At best 99 % of 4 ms and 5 % more, in a carry that of the first 2 ms and 5 % less."""
    (found,) = check(steps_of(TAKEN, PUT_BACK))
    assert found.saving_ns_per_step == (round(0.95 * 1.98 * MS), round(1.05 * 3.96 * MS))


def test_where_nothing_else_reads_a_slice_both_ways_win_as_much():
    (found,) = check(steps_of(TAKEN, PUT_BACK | {"carried_ratio": 0.01}))
    assert found.saving_ns_per_step[0] == round(0.95 * 3.96 * MS)
    assert "carry" not in found.fix


def test_it_stays_quiet():
    assert list(check(steps_of({}, {}))) == []


def test_without_the_programs_nothing_is_known():
    built = TraceBuilder()
    row = {"start_ns": 0, "duration_ns": 5, "device": 0}
    built.add("compiled_ops", op="dot.1", **row)
    built.add("device_ops", name="dot.1", kind=DeviceKind.KERNEL, **row)
    with pytest.raises(NotChecked, match="compiled programs"):
        list(check(built.trace()))
