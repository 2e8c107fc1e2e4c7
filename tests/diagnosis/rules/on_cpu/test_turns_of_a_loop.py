"""What belongs to the turns of a loop over small tensors, and what one call for all leaves."""

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.mean.what_if import what_if_mean
from pinchpoint.diagnosis.engine import diagnose

MS, US = 1_000_000, 1_000
STEP_NS, TURNS = 10 * MS, 80
ROW = {"shapes": "[[1, 512], [512, 512]]", "dtypes": '["float", "float"]'}


def found(builder):
    said = {r.id: r for r in diagnose(builder.trace()).found}
    return said.get("cpu-operator-loop")


def program(steps=5):
    builder = TraceBuilder()
    builder.devices = []
    for step in range(steps):
        builder.step(step, step * STEP_NS, STEP_NS)
    return builder


def in_turns(builder, at, between=None):
    """80 turns of 100 µs: 60 in an operator, and 40 between two, of which ``between`` gets 30."""
    for turn in range(TURNS):
        start = at + turn * 100 * US
        builder.op("aten::linear", start, 60 * US, **ROW)
        if between is not None:
            between(builder, start + 65 * US)


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        pytest.param("env.py(7): observe", True, id="a function of the program"),
        pytest.param("torch/nn/modules/module.py(9): __call__", False, id="of a library"),
        pytest.param(None, False, id="none"),
    ],
)
def test_what_a_function_of_the_program_computes_between_two_turns_stays(name, stays):
    """One call for all turns leaves a tenth of the operators, and none of what lies between."""
    builder = program()
    between = None if name is None else lambda b, at: b.python(name, at, 30 * US)
    for step in range(5):
        builder.python("train.py(5): train", step * STEP_NS + 1, STEP_NS - 10)
        in_turns(builder, step * STEP_NS + 10 * US, between)
    left_ns = STEP_NS - 0.9 * TURNS * 60 * US - (TURNS - 1) * 40 * US
    left_ns += (TURNS - 1) * 30 * US if stays else 0
    at_best = what_if_mean(builder.trace(), found(builder).finding.at_best)
    assert at_best.step_ns == pytest.approx(left_ns, abs=US)


def test_a_function_that_calls_operators_is_a_turn_itself():
    """And what it computes between its own operators goes with them."""
    builder = program()
    for step in range(5):
        builder.python("train.py(5): train", step * STEP_NS + 1, STEP_NS - 10)
        for turn in range(TURNS):
            start = step * STEP_NS + 10 * US + turn * 100 * US
            builder.python("model.py(3): score", start, 90 * US)
            builder.op("aten::linear", start + US, 60 * US, **ROW)
    said = found(builder)
    assert said.finding.cost_ns_per_step == TURNS * 90 * US
    assert said.predicted.range_ns[0] < STEP_NS - 0.9 * TURNS * 90 * US


def test_what_is_called_once_a_step_by_a_loop_around_the_steps_is_no_loop():
    """As of a thread of a pool that handles one request after the other."""
    builder = program(steps=20)
    builder.python("concurrent/futures/thread.py(53): run", 1, 20 * STEP_NS - 10)
    for step in range(20):
        builder.op("aten::linear", step * STEP_NS + 10 * US, 8 * MS, **ROW)
    assert found(builder) is None
