"""What XLA compiles badly for a CPU, and what another way was measured to take."""

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rules.on_cpu.cpu_compiled_way import check
from pinchpoint.trace import Device

MS = 1_000_000
MODEL = "/code/model.py:9"


def _steps(way, *, ms=60, written=0, devices=()):
    """Ten steps of 100 ms: an operation, and 30 ms of others."""
    built = TraceBuilder(devices=devices)
    for number in range(10):
        at = number * 100 * MS
        built.step(number, at, 100 * MS)
        told = {"way": way, "way_ratio": 0.0, "way_bytes": written, "way_at": MODEL}
        for op, start, took, more in (
            ("conv.1", at, ms, told if way else {}),
            ("dot.2", at + 65 * MS, 30, {}),
        ):
            built.op(op, start, took * MS)
            built.add("compiled_ops", op=op, start_ns=start, duration_ns=took * MS, **more)
    return built.trace()


@pytest.mark.parametrize(
    ("way", "words", "most", "likely"),
    [("depthwise", "channel by itself", 0.32, 0.05), ("systems", "Small linear", 0.18, 0.12)],
)
def test_what_another_way_was_seen_to_take(way, words, most, likely):
    (found,) = check(_steps(way))
    assert words in found.summary
    assert (found.location.file, found.location.line) == ("/code/model.py", 9)
    assert found.saving_ns_per_step[0] == pytest.approx(0.95 * (1 - most) * 60 * MS)
    assert found.likely_saving_ns == pytest.approx((1 - likely) * 60 * MS)


def test_transforms_take_their_time_for_each_number():
    (found,) = check(_steps("long", written=1_000_000))
    sure, most = found.saving_ns_per_step
    assert sure == pytest.approx(0.95 * 45 * MS)
    assert most == pytest.approx(55 * MS)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(_steps(None), id="nothing of it"),
        pytest.param(_steps("rows"), id="another rule's"),
        pytest.param(
            _steps("depthwise", devices=(Device(0, "NVIDIA H200", vendor="nvidia"),)), id="a device"
        ),
    ],
)
def test_it_stays_quiet(trace):
    assert list(check(trace)) == []


def test_a_small_part_of_the_step_is_seen(outcome):
    said = outcome("cpu-compiled-way", _steps("depthwise", ms=2))
    assert (said.answer, said.why) == ("smaller", "smaller than 5 % of the step: 2.0 %")
