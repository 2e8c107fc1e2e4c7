import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.diagnosis.rules.precision_and_layout.widened_products import check
from pinchpoint.trace import Device, DeviceKind

MS = 1_000_000


def steps_of(**told):
    """Ten steps of 10 ms: a product of 4 ms, and 2 ms in what moves its result."""
    built = TraceBuilder(devices=(Device(0, "NVIDIA H100 80GB HBM3", vendor="nvidia"),))
    for number in range(10):
        at = number * 10 * MS
        built.step(number, at, 10 * MS)
        for op, start, took, counts in (
            ("dot.1", at, 4, {"flops": 10**9, "bytes": 10**6, "spared_bytes": 5 * 10**5}),
            ("fusion.2", at + 4 * MS, 2, {"bytes": 10**6, "spared_bytes": 25 * 10**4}),
        ):
            row = {"start_ns": start, "duration_ns": took * MS, "device": 0}
            built.add("compiled_ops", op=op, source="model.py:6", **row, **counts, **told)
            built.add("device_ops", name=op, kind=DeviceKind.KERNEL, stream=1, **row)
    return built.trace()


def test_the_line_that_widened_them_is_named():
    (found,) = check(steps_of(widened_at="/code/model.py:5", widened_to="f32"))
    assert found.summary == (
        "Numbers of 16 bits become float32 at model.py:5, and 1 products a step are computed in"
        " it: 4.00 ms of each recorded step, and 2.00 ms more in what moves their numbers"
    )
    assert (found.location.file, found.location.line) == ("/code/model.py", 5)
    assert found.cost_ns_per_step == 6 * MS
    (change,) = found.changes
    assert change.factor.tolist()[:2] == [0.5, 0.75]  # never less than half; bytes that are left


def test_it_stays_quiet():
    assert list(check(steps_of())) == []


def test_without_the_programs_nothing_is_known():
    built = TraceBuilder()
    built.add("compiled_ops", op="dot.1", start_ns=0, duration_ns=5, device=0)
    built.add(
        "device_ops", name="dot.1", start_ns=0, duration_ns=5, device=0, kind=DeviceKind.KERNEL
    )
    with pytest.raises(NotChecked, match="compiled programs"):
        list(check(built.trace()))
