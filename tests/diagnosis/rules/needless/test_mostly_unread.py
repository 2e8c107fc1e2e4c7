"""Compiled operations of which a part is read."""

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.diagnosis.rules.needless.mostly_unread import check
from pinchpoint.trace import Device, DeviceKind

MS = 1_000_000


def steps_of(*, linked=False, **told):
    """Ten steps of 10 ms: a sort of 4 ms, and 5 ms of other work."""
    built = TraceBuilder(devices=(Device(0, "NVIDIA H100 80GB HBM3", vendor="nvidia"),))
    for number in range(10):
        at = number * 10 * MS
        built.step(number, at, 10 * MS)
        for op, start, took, more in (("sort.1", at, 4, told), ("dot.2", at + 4 * MS, 5, {})):
            row = {"start_ns": start, "duration_ns": took * MS, "device": 0}
            built.add("compiled_ops", op=op, source="model.py:6, jit(f)", bytes=1, **row, **more)
            if linked:
                built.launch(at + 1_000 + took, 500, op, start, took * MS)
            else:
                built.add("device_ops", name=op, kind=DeviceKind.KERNEL, stream=1, **row)
    return built.trace()


PERMUTED = {"read_at": "/code/model.py:7", "read_ratio": 0.01, "read_of": "permutation"}


def test_where_nothing_says_what_launched_it_the_step_is_shorter_by_what_the_device_is_spared():
    (found,) = check(steps_of(**PERMUTED))
    assert found.summary == (
        "Of a permutation made of random numbers 1 % is taken at model.py:6 and read at model.py:7:"
        " 4.00 ms of each recorded step in 1 operations"
    )
    assert found.location.line == 6
    assert found.saving_ns_per_step == (2_762_000, 4_158_000)  # idle for 1 ms of 10; 5 % of 3.96
    assert found.leaves_ns_per_step == 4_842_000


def test_launches_that_were_recorded_are_replayed():
    (found,) = check(steps_of(linked=True, **PERMUTED))
    (change,) = found.changes
    assert set(change.factor.tolist()) == {0.01}


@pytest.mark.parametrize("kind", ["results", "sort"])
def test_other_kinds_have_another_way_out(kind):
    (found,) = check(steps_of(**PERMUTED | {"read_of": kind}))
    assert "permut" not in found.summary + found.fix


def test_it_stays_quiet():
    assert list(check(steps_of())) == []


def test_without_the_programs_nothing_is_known():
    built = TraceBuilder()
    row = {"start_ns": 0, "duration_ns": 5, "device": 0}
    built.add("compiled_ops", op="dot.1", **row)
    built.add("device_ops", name="dot.1", kind=DeviceKind.KERNEL, **row)
    with pytest.raises(NotChecked, match="compiled programs"):
        list(check(built.trace()))
