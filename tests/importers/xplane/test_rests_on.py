"""What rests on arguments that no program gives, from programs written by hand."""

import json

import pytest

from importers.xplane.test_partly_read import one
from importers.xplane.test_programs import F32, instruction, shape
from pinchpoint.importers.xplane.fields import told_by
from pinchpoint.importers.xplane.hlo import Program
from pinchpoint.importers.xplane.rests_on import gives, rests_on
from pinchpoint.importers.xplane.shapes import DOUBLE
from xplane_messages import message

POINTS, STATE, BIG = (64, 8), (64, 4), (64, 64)
FIXED = one("points", "parameter", 1, (), POINTS, scope="points")
CHANGED = one("state", "parameter", 2, (), STATE, F32, (9, 1), scope="state['x']")
FACTOR = one("factor", "custom-call", 3, (1,), BIG)
SOLVED = one("solved", "triangular-solve", 4, (3, 2), STATE)
TOLD = {"names": ["points"], "arrays": [["float32", [64, 8], 1]], "numbers": 0}


def program(*instructions, root, inside=(), inside_root=0, aliases=()):
    entry = message((1, "main"), (5, 1), (6, root), *instructions)
    called = message((1, "inner"), (5, 2), (6, inside_root), *inside)
    more = [(8, message(*((1, message((2, number))) for number in aliases)))] if aliases else []
    return Program(told_by(message((1, "jit_f"), (6, 1), (3, entry), (3, called), *more)))


def of(*instructions, root, given=None, **more):
    one_program = program(*instructions, root=root, **more)
    told = rests_on(one_program, gives(one_program) if given is None else given)
    return {name: json.loads(text) for name, text in told.items()}


def test_what_rests_on_a_fixed_argument_alone():
    assert of(FIXED, CHANGED, FACTOR, SOLVED, root=4) == {"factor": TOLD}


def test_as_many_arguments_of_a_shape_as_there_are():
    other = one("other", "parameter", 5, (), POINTS, F32, (9, 2), scope="queries")
    found = of(FIXED, CHANGED, other, FACTOR, SOLVED, root=4)
    assert found["factor"]["arrays"] == [["float32", [64, 8], 2]]
    assert found["factor"]["names"] == ["points"]


def test_an_argument_like_what_any_program_gives_may_change():
    assert of(FIXED, CHANGED, FACTOR, SOLVED, root=4, given={(F32, POINTS)}) == {}
    assert "factor" in of(FIXED, CHANGED, FACTOR, SOLVED, root=4, given={(DOUBLE, POINTS)})


def test_an_argument_that_was_given_to_be_changed():
    assert of(FIXED, CHANGED, FACTOR, SOLVED, root=4, aliases=(0,)) == {}


def test_a_single_number_may_be_another_one():
    number = one("number", "parameter", 5, (), (), F32, (9, 2))
    scaled = one("scaled", "multiply", 6, (3, 5), BIG)
    solved = one("solved", "triangular-solve", 4, (6, 2), STATE)
    assert set(of(FIXED, CHANGED, number, FACTOR, scaled, solved, root=4)) == {"factor"}


@pytest.mark.parametrize(
    "outside",
    [
        pytest.param(one("factor", "rng", 3, (1,), BIG), id="random numbers"),
        pytest.param(one("factor", "infeed", 3, (1,), BIG), id="infeed"),
        pytest.param(
            one("factor", "custom-call", 3, (1,), BIG, F32, (28, "xla_python_cpu_callback")),
            id="callback",
        ),
    ],
)
def test_what_comes_from_outside_may_change(outside):
    assert of(FIXED, CHANGED, outside, SOLVED, root=4) == {}


def test_the_order_in_memory_is_not_the_programs():
    turned = one("factor", "copy", 3, (1,), BIG)
    assert of(FIXED, CHANGED, turned, SOLVED, root=4) == {}
    inside = (
        one("p0", "parameter", 20, (), POINTS),
        one("turned", "transpose", 21, (20,), POINTS),
        one("copied", "copy", 22, (21,), POINTS),
    )
    fused = one("factor", "fusion", 3, (1,), POINTS, F32, (38, 2))
    assert of(FIXED, CHANGED, fused, SOLVED, root=4, inside=inside, inside_root=22) == {}


def test_constants_alone():
    table = one("table", "constant", 5, (), BIG)
    factor = one("factor", "custom-call", 3, (5,), BIG)
    found = of(FIXED, CHANGED, table, factor, SOLVED, root=4)
    assert found == {"factor": {"names": [], "arrays": [], "numbers": 0}}


def test_a_fusion_goes_by_what_it_is_given():
    inside = (
        one("p0", "parameter", 20, (), POINTS),
        one("p1", "parameter", 21, (), STATE, F32, (9, 1)),
        one("bent", "tanh", 22, (20,), POINTS),
    )
    fixed = one("factor", "fusion", 3, (1,), POINTS, F32, (38, 2))
    mixed = one("mixed", "fusion", 6, (1, 2), POINTS, F32, (38, 2))
    found = of(FIXED, CHANGED, fixed, mixed, SOLVED, root=4, inside=inside, inside_root=22)
    assert set(found) == {"factor", "mixed"}  # its result does not read the other argument


def test_in_a_loop_all_goes_by_what_the_loop_is_given():
    pair = message((2, 13), (4, shape(*POINTS)), (4, shape(*STATE)))
    inside = (
        instruction("carried", "parameter", pair, 20),
        one("step", "dot", 21, (20,), POINTS),
        instruction("next", "tuple", pair, 22, (21, 21)),
    )
    both = instruction("both", "tuple", pair, 5, (1, 2))
    fixed = instruction("fixed", "tuple", pair, 5, (1, 1))
    loop = instruction("loop", "while", pair, 6, (5,), (38, 2))
    last = one("last", "get-tuple-element", 7, (6,), POINTS, F32, (13, 1))
    used = one("used", "dot", 4, (7, 2), STATE)
    more = {"inside": inside, "inside_root": 22, "root": 4}
    assert "step" in of(FIXED, CHANGED, fixed, loop, last, used, **more)
    assert of(FIXED, CHANGED, both, loop, last, used, **more) == {}
