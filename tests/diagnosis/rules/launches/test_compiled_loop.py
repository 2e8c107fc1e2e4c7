import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rules.launches.compiled_loop import check
from pinchpoint.trace import Device, DeviceKind

US = 1_000


def steps_of(took_us=4, gap_us=6, operations=200, **told):
    """Ten steps of 3 ms, each with one loop."""
    told = {"loop": "/code/rnn.py:12", "iterations": 100} | told
    built = TraceBuilder(devices=(Device(0, "NVIDIA H100 80GB HBM3", vendor="nvidia"),))
    for number in range(10):
        at = number * 3000 * US
        built.step(number, at, 3000 * US)
        for turn in range(operations):
            start = at + turn * (took_us + gap_us) * US
            row = {"start_ns": start, "duration_ns": took_us * US, "device": 0}
            built.add("compiled_ops", op="fusion.1", bytes=64, **row, **told)
            built.add("device_ops", name="fusion_1", kind=DeviceKind.KERNEL, stream=1, **row)
    return built.trace()


def test_what_the_device_stands_still_between_operations_of_a_loop():
    (found,) = check(steps_of())
    assert found.summary == (
        "The loop of 100 iterations at /code/rnn.py:12 runs 200 operations a step, 4.00 µs each,"
        " and between them the device stands still for 1.19 ms of each recorded step"
    )
    assert found.cost_ns_per_step == 199 * 6 * US
    assert (found.location.file, found.location.line) == ("/code/rnn.py", 12)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(steps_of(operations=60), id="few"),
        pytest.param(steps_of(took_us=12, gap_us=1), id="long ones"),
        pytest.param(steps_of(loop=None, iterations=None), id="no loop"),
    ],
)
def test_it_stays_quiet(trace):
    assert list(check(trace)) == []
