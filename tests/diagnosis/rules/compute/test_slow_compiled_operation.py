import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.diagnosis.rules.compute.slow_compiled_operation import check
from pinchpoint.trace import Device, DeviceKind

MS = 1_000_000
# Of a TPU v6e: 1638 GB/s and 918 TFLOP/s of bfloat16.
BYTES_OF_A_MS, FLOPS_OF_A_MS = 1_638_000_000, 918_000_000_000


def steps_of(op="fusion.3", took_ms=6, name="TPU v6 lite", kind=DeviceKind.KERNEL, **counts):
    """Ten steps of 10 ms with one operation."""
    built = TraceBuilder(devices=(Device(0, name, vendor="google"),))
    for number in range(10):
        at = number * 10 * MS
        built.step(number, at, 10 * MS)
        row = {"start_ns": at, "duration_ns": took_ms * MS, "device": 0}
        place = "model/layers.py:41, jit(step)/dot"
        built.add(
            "compiled_ops", op=op, category="convolution fusion", source=place, **row, **counts
        )
        built.add("device_ops", name=op, kind=kind, stream=1, **row)
    return built.trace()


def test_an_operation_far_from_its_limit_is_named_with_its_line():
    (found,) = check(steps_of(bytes=BYTES_OF_A_MS, flops=FLOPS_OF_A_MS // 2))
    assert found.summary == (
        "fusion.3 (convolution fusion) takes 6.00 ms of the device's time a step where 1.00 ms"
        " would do: 76.5 TFLOP/s and 273 GB/s"
    )
    assert found.saving_ns_per_step == (0, 5 * MS)
    assert (found.location.file, found.location.line) == ("model/layers.py", 41)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(steps_of(bytes=3 * BYTES_OF_A_MS, flops=1), id="near the memory's rate"),
        pytest.param(
            steps_of(bytes=1, flops=2 * FLOPS_OF_A_MS), id="as float32 in several passes may be"
        ),
        pytest.param(steps_of(), id="not counted"),
        pytest.param(steps_of("copy-done.3", bytes=1, flops=1), id="a wait"),
        pytest.param(
            steps_of("all-reduce.3", kind=DeviceKind.COLLECTIVE, bytes=1, flops=1), id="collective"
        ),
        pytest.param(TraceBuilder().trace(), id="nothing"),
    ],
)
def test_it_stays_quiet(trace):
    assert list(check(trace)) == []


def test_a_short_one_is_seen(outcome):
    said = outcome("slow-compiled-operation", steps_of(took_ms=1, bytes=1, flops=1))
    assert (said.answer, said.why) == ("smaller", "smaller than 15 % of the step: 9.9 %")


def test_a_device_of_unknown_rates_is_not_judged():
    with pytest.raises(NotChecked, match="peak rates"):
        list(check(steps_of(name="NPU 9", bytes=1, flops=1)))
