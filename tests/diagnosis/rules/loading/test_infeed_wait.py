import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rules.loading.infeed_wait import check

MS = 1_000_000


def steps_of(*operations, device=0):
    """Ten steps of 10 ms of a compiled program; operations are (name, ms)."""
    built = TraceBuilder()
    for number in range(10):
        at = number * 10 * MS
        built.step(number, at, 10 * MS)
        for name, lasts in operations:
            row = {"start_ns": at, "duration_ns": lasts * MS, "device": device}
            built.add("compiled_ops", op=name, **row)
            built.add("device_ops", name=name, kind=1, stream=1, **row | {"device": 0})
            at += lasts * MS
    return built.trace()


@pytest.mark.parametrize("name", ["infeed.2", "recv-done.7", "infeed"])
def test_it_says_how_long_the_program_waits(name):
    (found,) = check(steps_of((name, 3), ("fusion.3", 6)))
    assert found.summary == "The compiled program waits 3.00 ms a step for input from the host"
    assert found.cost_ns_per_step == 3 * MS
    assert found.saving_ns_per_step == (1.5 * MS, 3 * MS)


def test_output_is_a_finding_of_its_own():
    (found,) = check(steps_of(("fusion.3", 6), ("outfeed.1", 2)))
    assert "take its output" in found.summary


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(steps_of(("fusion.3", 6)), id="nothing waits"),
        pytest.param(steps_of(("infeed_fusion.3", 6)), id="only a name that begins alike"),
        pytest.param(steps_of(("infeed.2", 3), device=None), id="on the host"),
        pytest.param(TraceBuilder().trace(), id="nothing compiled"),
    ],
)
def test_it_stays_quiet(trace):
    assert list(check(trace)) == []
