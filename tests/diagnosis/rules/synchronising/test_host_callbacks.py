import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rules.synchronising.host_callbacks import check
from pinchpoint.trace import Device, DeviceKind
from pinchpoint.trace.kinds import HOST_CALLBACK

MS = 1_000_000
PLACE = "/code/model.py:41, jit(step)/pure_callback"


def steps_of(*ops, category=HOST_CALLBACK):
    """Ten steps of 10 ms with these operations: name, start and length in ms."""
    built = TraceBuilder(devices=(Device(0, "NVIDIA H100 80GB HBM3", vendor="nvidia"),))
    for number in range(10):
        at = number * 10 * MS
        built.step(number, at, 10 * MS)
        for op, start, took in ops:
            told = {"category": category, "source": PLACE} if op.startswith("custom") else {}
            row = {"start_ns": at + int(start * MS), "duration_ns": int(took * MS), "device": 0}
            built.add("compiled_ops", op=op, **row, **told)
            built.add("device_ops", name=op, kind=DeviceKind.KERNEL, stream=1, **row)
    return built.trace()


COPIES = ("custom-call.3", 1, 0.1), ("custom-call.3", 4, 0.5)


def test_from_the_copies_to_the_host_until_those_back():
    (found,) = check(steps_of(("fusion.1", 0, 1), *COPIES, ("fusion.2", 5, 1)))
    assert found.cost_ns_per_step == 3.5 * MS
    assert found.summary == (
        "The compiled program calls Python back on the host 1 × a step, for /code/model.py:41:"
        " 3.50 ms of each recorded step, in which what comes next in it waits"
    )
    assert (found.location.file, found.location.line) == ("/code/model.py", 41)


def test_what_ran_between_parts_two_calls():
    (found,) = check(steps_of(COPIES[0], ("fusion.1", 2, 1), COPIES[1]))
    assert found.cost_ns_per_step == 0.6 * MS


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(steps_of(*COPIES, category="custom-call"), id="another custom call"),
        pytest.param(TraceBuilder().trace(), id="nothing"),
    ],
)
def test_it_stays_quiet(trace):
    assert list(check(trace)) == []


def test_a_short_callback_is_seen(outcome):
    said = outcome("host-callbacks", steps_of(("custom-call.3", 1, 0.1)))
    assert (said.answer, said.why) == ("smaller", "smaller than 3 % of the step: 1.0 %")
