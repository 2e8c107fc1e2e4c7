"""What is computed for one side of a condition under ``vmap``, from programs written by hand."""

import pytest

from importers.xplane.test_partly_read import one
from importers.xplane.test_programs import F32, instruction, shape
from pinchpoint.importers.xplane.chosen import Chosen, chosen
from pinchpoint.importers.xplane.fields import told_by
from pinchpoint.importers.xplane.hlo import Program
from xplane_messages import message

ROWS, WIDE = (64,), (64, 32)
OVER, OLD = one("over", "parameter", 1, (), ROWS), one("old", "parameter", 2, (), WIDE)
SPREAD = one("spread", "broadcast", 3, (1,), WIDE)
FRESH = one("fresh", "custom-call", 4, (1,), WIDE)
KEPT = one("kept", "custom-call", 5, (2,), WIDE)
SCOPE = "jit(step)/vmap()/select_n"


def pick(scope=SCOPE, predicate=3):
    return one("pick", "select", 9, (predicate, 4, 5), WIDE, scope=scope)


def of(*instructions, root=9, inside=(), inside_root=0):
    entry = message((1, "main"), (5, 1), (6, root), *instructions)
    called = message((1, "fused"), (5, 2), (6, inside_root), *inside)
    return chosen(Program(told_by(message((1, "jit_f"), (6, 1), (3, entry), (3, called)))))


def test_what_each_side_alone_reads():
    line = "model.py:9"
    assert of(OVER, OLD, SPREAD, FRESH, KEPT, pick()) == {
        "fresh": Chosen(line, 1),
        "kept": Chosen(line, 2),
    }


def test_what_is_read_elsewhere_is_not_for_the_condition():
    both = instruction("both", "tuple", message((2, 13), (4, shape(1))), 12, (9, 4))
    assert set(of(OVER, OLD, SPREAD, FRESH, KEPT, pick(), both, root=12)) == {"kept"}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(pick("jit(step)/vmap(jit(_where))/select_n"), id="where"),
        pytest.param(pick("jit(step)/jit(_where)/select_n"), id="where outside"),
        pytest.param(pick("jit(step)/select_n"), id="no vmap"),
        pytest.param(pick(predicate=2), id="element by element"),
    ],
)
def test_other_choices_are_no_conditions(other):
    assert of(OVER, OLD, SPREAD, FRESH, KEPT, other) == {}


def test_through_fusions_and_their_tuples():
    """The select is in a fusion that gives two results; only one of them is the choice."""
    inside = (
        one("p0", "parameter", 20, (), WIDE),
        one("p1", "parameter", 21, (), WIDE, F32, (9, 1)),
        one("p2", "parameter", 22, (), WIDE, F32, (9, 2)),
        one("chosen", "select", 23, (20, 21, 22), WIDE, scope=SCOPE),
        one("spread.2", "broadcast", 25, (26,), WIDE),
        one("p3", "parameter", 26, (), ROWS, F32, (9, 3)),
        one("chosen.2", "select", 27, (25, 21, 22), WIDE, scope=SCOPE),
        instruction("out", "tuple", message((2, 13), (4, shape(*WIDE))), 28, (23, 27)),
    )
    pair = message((2, 13), (4, shape(*WIDE)), (4, shape(*WIDE)))
    fusion = instruction("fusion", "fusion", pair, 9, (3, 4, 5, 1), (38, 2))
    part = one("part", "get-tuple-element", 10, (9,), WIDE, F32, (13, 1))
    found = of(OVER, OLD, SPREAD, FRESH, KEPT, fusion, part, root=10, inside=inside, inside_root=28)
    assert {name: told.side for name, told in found.items()} == {"fresh": 1, "kept": 2}
