"""Which products of a compiled program take numbers that it made wider, and where it did."""

import pytest

from importers.xplane.test_programs import BF16, F32, instruction, shape
from pinchpoint.importers.xplane.fields import told_by
from pinchpoint.importers.xplane.hlo import Program
from pinchpoint.importers.xplane.widened import widened
from xplane_messages import message

LINE_OF = {"narrow": 3, "scale": 5, "scaled": 5, "other": 6, "dot": 6, "shrunk": 7, "loss": 8}


def told(name, scope=""):
    line = LINE_OF.get(name, 6)
    return (7, message((2, scope or f"jit(f)/{name}"), (3, "model.py"), (4, line)))


def one(name, opcode, number, operands=(), kind=F32, *more, sizes=(64, 64)):
    return instruction(name, opcode, shape(*sizes, kind=kind), number, operands, told(name), *more)


def of(*instructions):
    entry = message((1, "main"), (5, 1), *instructions)
    return widened(Program(told_by(message((1, "jit_f"), (6, 1), (3, entry)))))


NARROW = one("narrow", "parameter", 10, (), BF16, (9, 0))
OTHER = one("key", "parameter", 11, (), BF16, (9, 1))
SCALED = (
    one("wide", "convert", 12, (10,)),
    one("scale", "constant", 13),
    one("scaled", "multiply", 14, (12, 13)),
)
LOSS = one("loss", "reduce", 20, (16,))
DOT_16 = one("dot", "dot", 16, (14, 15))


def test_a_product_with_what_a_constant_of_float32_widened():
    found = of(NARROW, OTHER, *SCALED, one("other", "convert", 15, (11,)), DOT_16, LOSS)
    assert {name: (w.at, w.dtype, w.product) for name, w in found.items()} == {
        "dot": ("model.py:5", "f32", True),  # where it is first computed with, not converted
        "scaled": ("model.py:5", "f32", False),
        "other": ("model.py:5", "f32", False),
        "loss": ("model.py:5", "f32", False),
    }
    assert found["dot"].spared_bytes == 3 * 64 * 64 * 2


PARAMETER = one("weights", "parameter", 15, (), F32, (9, 2))


def test_one_side_of_narrow_numbers_is_enough():
    assert of(NARROW, *SCALED, PARAMETER, DOT_16)["dot"].product


@pytest.mark.parametrize(
    "instructions",
    [
        pytest.param(
            (
                NARROW,
                OTHER,
                *SCALED,
                one("shrunk", "convert", 15, (14,), BF16),
                one("dot", "dot", 16, (15, 11)),
            ),
            id="narrow again, and a product with a wide result",
        ),
        pytest.param(
            (
                NARROW,
                one("wide", "convert", 12, (10,)),
                one("weights", "parameter", 13, (), F32, (9, 1)),
                one("scaled", "multiply", 14, (12, 13)),
                PARAMETER,
                DOT_16,
            ),
            id="both rest on float32 parameters",
        ),
        pytest.param(
            (
                NARROW,
                *SCALED,
                PARAMETER,
                one("dot", "dot", 16, (14, 15), F32, (51, b"\x0a\x02\x02\x02")),
            ),
            id="the highest precision is asked for",
        ),
    ],
)
def test_what_is_meant_to_be_wide(instructions):
    assert of(*instructions) == {}


def test_a_loop_hands_widened_values_on():
    """What one iteration makes, the next one takes."""
    pair = message((2, 13), (4, shape(64, 64)), (4, shape(64, 64)))
    of_body = (
        instruction("carried", "parameter", pair, 30, (), (9, 0)),
        one("left", "get-tuple-element", 31, (30,), F32, (13, 0)),
        one("right", "get-tuple-element", 32, (30,), F32, (13, 1)),
        one("dot", "dot", 33, (31, 32)),
        instruction("handed", "tuple", pair, 34, (33, 32)),
    )
    body = message((1, "body"), (5, 2), (6, 34), *of_body)
    entry = message(
        (1, "main"), (5, 1), NARROW, OTHER, *SCALED, one("other", "convert", 15, (11,)),
        instruction("first", "tuple", pair, 17, (14, 15)),
        instruction("loop", "while", pair, 18, (17,), (38, b"\x02\x03")),
    )  # fmt: skip
    program = Program(told_by(message((1, "jit_f"), (6, 1), (3, entry), (3, body))))
    assert widened(program)["dot"].at == "model.py:5"
