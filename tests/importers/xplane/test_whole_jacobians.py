"""Jacobians of which products or the trace are used, from programs written by hand."""

import pytest

from importers.xplane.test_other_way import EQUAL, PRED, S32, summing
from importers.xplane.test_partly_read import one
from importers.xplane.test_programs import F32, instruction, shape
from pinchpoint.importers.xplane.fields import told_by
from pinchpoint.importers.xplane.hlo import Program
from pinchpoint.importers.xplane.other_way import OtherWay
from pinchpoint.importers.xplane.whole_jacobians import whole_jacobians
from xplane_messages import message

N = 64
FORWARD, BACK = "jit(step)/vmap(jvp(f))/dot_general", "jit(step)/vmap(transpose(jvp(f)))/dot"
ROW, COLUMN = (one(f"i{n}", "iota", n, (), (N, N), S32) for n in (1, 2))
EYE = one("eye", "compare", 3, (1, 2), (N, N), PRED, EQUAL)
ONES = one("ones", "convert", 4, (3,), (N, N))
WEIGHT = one("weight", "parameter", 5, (), (N, N))
PUSHED = one("pushed", "dot", 6, (4, 5), (N, N), F32, summing(1), scope=FORWARD)
TURNED = one("turned", "transpose", 7, (6,), (N, N), scope="jit(step)/vmap()/transpose")
VECTOR = one("vector", "parameter", 8, (), (N,), F32, (9, 1))
USED = one("used", "dot", 9, (7, 8), (N,), F32, summing(1), scope="jit(step)/dot_general")
BEFORE = (ROW, COLUMN, EYE, ONES, WEIGHT)


def of(*instructions, root):
    entry = message((1, "main"), (5, 1), (6, root), *instructions)
    return whole_jacobians(Program(told_by(message((1, "jit_f"), (6, 1), (3, entry)))))


def two_passes(kind="jacobian"):
    return OtherWay(kind, pytest.approx(2 / N), 0, "model.py:9")


@pytest.mark.parametrize("scope", [FORWARD, BACK])
def test_a_product_with_a_vector(scope):
    pushed = one("pushed", "dot", 6, (4, 5), (N, N), F32, summing(1), scope=scope)
    assert of(*BEFORE, pushed, TURNED, VECTOR, USED, root=9) == {"pushed": two_passes()}


def test_a_product_that_became_a_sum():
    spread = one("spread", "broadcast", 10, (8,), (N, N))
    times = one("times", "multiply", 11, (6, 10), (N, N), scope="jit(step)/dot_general")
    added = one("added", "reduce", 9, (11,), (N,), scope="jit(step)/dot_general")
    assert of(*BEFORE, PUSHED, VECTOR, spread, times, added, root=9) == {"pushed": two_passes()}


def test_a_trace():
    zero = one("zero", "constant", 10, (), (N, N))
    chosen = one("chosen", "select", 11, (3, 6, 10), (N, N), scope="jit(step)/jit(trace)/select_n")
    added = one("added", "reduce", 9, (11,), (), scope="jit(step)/jit(trace)/reduce_sum")
    assert of(*BEFORE, PUSHED, zero, chosen, added, root=9) == {"pushed": two_passes("trace")}


MATRIX = one("matrix", "parameter", 8, (), (N, N), F32, (9, 1))


@pytest.mark.parametrize(
    "after",
    [
        pytest.param((one("used", "custom-call", 9, (7,), (N, N), scope="a/lu"),), id="solved"),
        pytest.param(
            (MATRIX, one("used", "dot", 9, (7, 8), (N, N), F32, summing(1), scope="a/dot")),
            id="multiplied with as many vectors",
        ),
        pytest.param((one("used", "add", 9, (7, 7), (N, N), scope="a/add"),), id="added to"),
        pytest.param(
            (
                VECTOR,
                USED,
                instruction("both", "tuple", message((2, 13), (4, shape(1))), 12, (7, 9)),
            ),
            id="given back as well",
        ),
    ],
)
def test_a_jacobian_that_is_wanted(after):
    root = 12 if len(after) == 3 else 9
    assert of(*BEFORE, PUSHED, TURNED, *after, root=root) == {}


def test_derivatives_of_many_samples_are_no_identity():
    data = one("ones", "parameter", 4, (), (N, N), F32, (9, 2))
    assert of(data, WEIGHT, PUSHED, TURNED, VECTOR, USED, root=9) == {}


def test_an_identity_that_is_added_to_a_matrix_is_no_jacobian():
    used = one("used", "dot", 9, (4, 8), (N,), F32, summing(1), scope="jit(step)/dot_general")
    assert of(*BEFORE, VECTOR, used, root=9) == {}
