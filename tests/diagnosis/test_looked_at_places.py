"""Findings of steps of 100 ms in ``main``, of which the recording says that all is there."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from looked_at_runs import samples_of
from pinchpoint.diagnosis.engine import Diagnosis, Ranked
from pinchpoint.diagnosis.finding import Found, Location
from pinchpoint.diagnosis.looked_at_places import with_inner_places
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_samples import SampledThread, Spent

MS = 1_000_000
MAIN, NORMS = "train.py(120): main", "train.py(64): measure"
OPERATOR = "torch/_tensor.py(900): item"


def run(*spent_ms, after=()):
    """``spent_ms``: frames, and milliseconds of a thousand looks of one each."""
    b = TraceBuilder(devices=())
    for step in range(5):
        b.step(step, step * 100 * MS, 100 * MS)
        b.op("aten::item", step * 100 * MS + MS, 90 * MS)
    spent = tuple(Spent(frames, "", ms, 1000 * ms, 0, 0) for frames, ms in spent_ms)
    samples = samples_of(SampledThread("MainThread", True, 1000, None, (), spent))
    frames = tuple(frame for one, _ in after for frame in one)
    stacks = tuple((row,) for row in range(len(frames)))
    samples = replace(
        samples, frames=frames, stacks=stacks, after=tuple((0, 1000 * ms) for _, ms in after)
    )
    return replace(b.trace(), run=RunFacts(samples=samples))


def place(trace, cost_ms=60, module=None):
    at = Location("train.py", 120, "main", module=module, operator="aten::item")
    found = Found(summary="many reads", evidence=(), cost_ns_per_step=cost_ms * MS, location=at)
    said = with_inner_places(trace, Diagnosis((Ranked("x", found, None, 0),), None, ()))
    where = said.found[0].finding.location
    return where.function, where.line, where.operator


IN_NORMS = (OPERATOR, NORMS, MAIN)


@pytest.mark.parametrize(
    ("trace", "function"),
    [
        pytest.param(run((IN_NORMS, 600), ((MAIN,), 200)), "measure", id="seen in what it calls"),
        pytest.param(run((IN_NORMS, 500), ((MAIN,), 500)), "main", id="it may be of the caller"),
        pytest.param(run((IN_NORMS, 200), (("torch/x.py(1): f",), 800)), "main", id="seldom seen"),
        pytest.param(run(((OPERATOR, NORMS), 600), ((MAIN,), 200)), "main", id="not called by it"),
        pytest.param(run((IN_NORMS, 30), ((MAIN,), 10)), "main", id="few looks"),
        pytest.param(
            run((IN_NORMS, 600), ((MAIN,), 700), after=(((MAIN,), 600),)),
            "measure",
            id="after the steps",
        ),
    ],
)
def test_a_place_is_the_function_in_which_looks_were(trace, function):
    line = {"main": 120, "measure": 64}[function]
    assert place(trace) == (function, line, "aten::item")


def test_an_operator_is_in_a_call_and_not_where_python_computes():
    """``pack`` computes for half of the step; ``measure`` reads for a third."""
    packs = ("train.py(20): pack", MAIN)
    assert place(run((packs, 500), (IN_NORMS, 350), ((MAIN,), 150)))[0] == "measure"
    assert place(run((packs, 500), (IN_NORMS, 100), ((MAIN,), 150)))[0] == "main"


def test_small_costs_and_modules_stay_where_they_are():
    trace = run((IN_NORMS, 600), ((MAIN,), 200))
    assert place(trace, cost_ms=20)[0] == "main"
    assert place(trace, module="Net_0")[0] == "main"
