"""What rests on arguments that never change."""

import json
from types import MappingProxyType

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.diagnosis.rules.needless.unchanged_results import check
from pinchpoint.trace import Device, DeviceKind, RunFacts

MS = 1_000_000
MODEL = "/code/model.py:9"
POINTS = ("float32", (900, 8))
ON_POINTS = json.dumps({"names": ["points"], "arrays": [["float32", [900, 8], 1]], "numbers": 0})
ON_CONSTANTS = json.dumps({"names": [], "arrays": [], "numbers": 0})
ONE = {POINTS: 1, ("float32", (64,)): 3}


def _steps(rests_on=ON_POINTS, *, held=ONE, ms=60, puts=None, device=None):
    """Ten steps of 100 ms: an operation, and 30 ms of others."""
    built = TraceBuilder(devices=(device,) if device else ())
    for number in range(10):
        at = number * 100 * MS
        built.step(number, at, 100 * MS)
        for op, start, took, more in (
            ("cholesky.1", at + MS, ms, {"rests_on": rests_on, "source": MODEL}),
            ("dot.2", at + 65 * MS, 30, {"source": "/code/model.py:12"}),
        ):
            row = {"start_ns": start, "duration_ns": took * MS, "module": "jit_update"}
            if device:
                row["device"] = 0
                built.launch(at + took, 500, op, start, took * MS)
            else:
                built.op(op, start, took * MS)
            built.add("compiled_ops", op=op, **row, **more)
        if puts and not device:
            built.op("PjitFunction(update)", at + 96 * MS, 2 * MS)
            built.op(puts, at + 96 * MS + 1, MS)
        if puts and device:
            row = {"start_ns": at + 96 * MS, "duration_ns": MS, "device": 0, "stream": 1}
            built.add("device_ops", name="MemcpyH2D", kind=DeviceKind.COPY, bytes=puts, **row)
    run = None if held is None else RunFacts(live_arrays=MappingProxyType(held))
    return built.trace(run=run)


def test_what_rests_on_an_argument_of_which_there_is_one():
    (found,) = check(_steps())
    assert found.summary == (
        "1 operations a step of update rest on nothing but arguments that stay the same (points):"
        " 60.0 ms of each recorded step, most at model.py:9"
    )
    assert (found.location.file, found.location.line) == ("/code/model.py", 9)
    assert found.saving_ns_per_step == (pytest.approx(57 * MS), pytest.approx(60 * MS))


def test_on_a_device():
    (found,) = check(_steps(device=Device(0, "NVIDIA H200", vendor="nvidia"), puts=4))
    assert found.cost_ns_per_step == 60 * MS
    assert set(found.changes[0].factor.tolist()) == {0.0}


def test_a_single_number_is_put_in_each_call():
    (found,) = check(_steps(ON_POINTS.replace('"numbers": 0', '"numbers": 1'), puts="DevicePut"))
    assert found.cost_ns_per_step == 60 * MS


def test_constants_alone_need_no_look_at_arrays():
    (found,) = check(_steps(ON_CONSTANTS, held=None))
    assert "rest on nothing but constants" in found.summary


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(_steps(None), id="it rests on what changes"),
        pytest.param(_steps(held={POINTS: 16}), id="batches that lie ready"),
        pytest.param(_steps(held={}), id="the arrays are not known"),
        pytest.param(_steps(held=None), id="a recording alone"),
        pytest.param(_steps(held={("float64", (900, 8)): 1}), id="another type"),
    ],
)
def test_it_stays_quiet(trace):
    assert list(check(trace)) == []


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(_steps(puts="H2D Dispatch"), id="NumPy arrays"),
        pytest.param(_steps(puts="DevicePutWithSharding"), id="device_put"),
        pytest.param(_steps(puts="DevicePut"), id="small ones"),
        pytest.param(
            _steps(device=Device(0, "NVIDIA H200", vendor="nvidia"), puts=28_800), id="to a device"
        ),
    ],
)
def test_arrays_that_are_put_in_the_steps_may_be_the_arguments(trace):
    with pytest.raises(NotChecked, match="arrays are put in the steps"):
        list(check(trace))


def test_a_small_part_of_the_step_is_seen(outcome):
    said = outcome("unchanged-results", _steps(ms=2))
    assert (said.answer, said.why) == ("smaller", "smaller than 5 % of the step: 2.0 %")
