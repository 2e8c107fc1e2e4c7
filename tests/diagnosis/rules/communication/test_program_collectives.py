import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rules.communication.program_collectives import check
from pinchpoint.trace import DeviceKind

MS = 1_000_000


def steps_of(*lasts_ms, kind=DeviceKind.COLLECTIVE):
    """Ten steps of 10 ms, in which device i is in a collective for ``lasts_ms[i]``."""
    built = TraceBuilder()
    for number in range(10):
        at = number * 10 * MS
        built.step(number, at, 10 * MS)
        for device, lasts in enumerate(lasts_ms):
            row = {"start_ns": at, "duration_ns": lasts * MS, "device": device}
            built.add("compiled_ops", op="all-reduce.3", **row)
            built.add("device_ops", name="all-reduce.3", kind=kind, stream=1, **row)
    return built.trace()


def test_what_no_computing_hides_is_told():
    (found,) = check(steps_of(4, 4))
    assert found.cost_ns_per_step == 4 * MS
    assert found.summary.endswith("nothing is computed meanwhile")


def test_the_device_that_others_wait_for_is_named():
    (found,) = check(steps_of(4, 1, 4))
    assert found.cost_ns_per_step == 4 * MS  # of the middle one
    assert found.summary.endswith("the others wait for device 1")


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(steps_of(4, kind=DeviceKind.KERNEL), id="no collective"),
        pytest.param(steps_of(0, 0), id="done at once"),
        pytest.param(TraceBuilder().trace(), id="nothing"),
    ],
)
def test_it_stays_quiet(trace):
    assert list(check(trace)) == []
