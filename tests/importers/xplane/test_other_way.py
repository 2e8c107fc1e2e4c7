"""Products that are a look-up, a sum, a scaling or badly bracketed, from programs by hand."""

import pytest

from importers.xplane.test_partly_read import one
from importers.xplane.test_programs import F32, instruction, shape
from pinchpoint.importers.xplane.fields import told_by
from pinchpoint.importers.xplane.hlo import Program
from pinchpoint.importers.xplane.other_way import OtherWay, other_ways
from xplane_messages import message, varint

S32, PRED = 4, 1
B, V, D = 64, 1000, 16  # numbers, classes, columns
EQUAL = (63, "EQ")


def summing(at, other=0):
    return (30, message((1, varint(at)), (2, varint(other))))


def of(*instructions, root, inside=(), inside_root=0):
    entry = message((1, "main"), (5, 1), (6, root), *instructions)
    called = message((1, "fused"), (5, 2), (6, inside_root), *inside)
    return other_ways(Program(told_by(message((1, "jit_f"), (6, 1), (3, entry), (3, called)))))


NUMBERS = one("numbers", "parameter", 1, (), (B,), S32)
SPREAD = one("spread", "broadcast", 2, (1,), (B, V), S32)
COUNTER = one("counter", "iota", 3, (), (B, V), S32)
SAME = one("same", "compare", 4, (2, 3), (B, V), PRED, EQUAL)
CLASSES = one("classes", "convert", 5, (4,), (B, V))
TABLE = one("table", "parameter", 6, (), (V, D))
ROWS = one("rows", "dot", 7, (5, 6), (B, D), F32, summing(1))
ONE_HOT = (NUMBERS, SPREAD, COUNTER, SAME, CLASSES, TABLE)


def test_rows_looked_up_and_the_matrix_made_for_it():
    found = of(*ONE_HOT, ROWS, root=7)
    assert found == {
        "rows": OtherWay("rows", 0.0, 2 * 4 * B * D),
        "classes": OtherWay("rows", 0.0, 0),
    }


def test_a_matrix_that_is_read_elsewhere_stays():
    total = one("total", "reduce", 8, (5,), (B,))
    both = instruction("both", "tuple", message((2, 13), (4, shape(1))), 9, (7, 8))
    assert set(of(*ONE_HOT, ROWS, total, both, root=9)) == {"rows"}


def test_sums_by_class_numbers():
    added = one("added", "parameter", 10, (), (B, D))
    sums = one("sums", "dot", 11, (5, 10), (V, D), F32, summing(0))
    found = of(*ONE_HOT, added, sums, root=11)
    assert found["sums"] == OtherWay("sums", 0.0, 4 * (B * D + 2 * V * D))


def test_through_the_fusions_of_a_matrix_and_of_a_product():
    inside = (
        one("p0", "parameter", 20, (), (B,), S32),
        one("spread", "broadcast", 21, (20,), (B, V), S32),
        one("counter", "iota", 22, (), (B, V), S32),
        one("same", "compare", 23, (21, 22), (B, V), PRED, EQUAL),
        one("classes", "convert", 24, (23,), (B, V)),
    )
    fusion = one("fusion", "fusion", 5, (1,), (B, V), F32, (38, 2))
    found = of(NUMBERS, fusion, TABLE, ROWS, root=7, inside=inside, inside_root=24)
    assert set(found) == {"rows", "fusion"}


OTHER = one("other", "parameter", 30, (), (B, V), S32)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param((one("same", "compare", 4, (2, 30), (B, V), PRED, EQUAL), OTHER), id="data"),
        pytest.param((one("same", "compare", 4, (2, 3), (B, V), PRED, (63, "LT")),), id="below"),
        pytest.param((one("same", "compare", 4, (3, 3), (B, V), PRED, EQUAL),), id="counters"),
        pytest.param(
            (one("classes", "multiply", 5, (4, 30), (B, V)), OTHER, SAME), id="something else in it"
        ),
    ],
)
def test_what_is_no_matrix_of_class_numbers(changed):
    kept = [one for one in ONE_HOT if one not in (SAME,)]
    if len(changed) == 3:
        kept.remove(CLASSES)
    assert of(*kept, *changed, ROWS, root=7) == {}


def test_few_classes_are_columns_like_others():
    few = (
        NUMBERS,
        one("spread", "broadcast", 2, (1,), (B, 8), S32),
        one("counter", "iota", 3, (), (B, 8), S32),
        one("same", "compare", 4, (2, 3), (B, 8), PRED, EQUAL),
        one("classes", "convert", 5, (4,), (B, 8)),
        one("table", "parameter", 6, (), (8, D)),
    )
    assert of(*few, ROWS, root=7) == {}


N = 128
VECTOR = one("vector", "parameter", 1, (), (N,))
ROW, COLUMN = (one(f"i{n}", "iota", n, (), (N, N), S32) for n in (2, 3))
EYE = one("eye", "compare", 4, (2, 3), (N, N), PRED, EQUAL)
REPEATED = one("repeated", "broadcast", 5, (1,), (N, N))
ZERO = one("zero", "constant", 6, (), ())
ZEROS = one("zeros", "broadcast", 7, (6,), (N, N))
DIAGONAL = one("diagonal", "select", 8, (4, 5, 7), (N, N))
X = one("x", "parameter", 9, (), (N, D))
SCALED = one("scaled", "dot", 10, (8, 9), (N, D), F32, summing(1))
MADE = (VECTOR, ROW, COLUMN, EYE, REPEATED, ZERO, ZEROS)


def test_a_vector_made_a_diagonal():
    found = of(*MADE, DIAGONAL, X, SCALED, root=10)
    assert found["scaled"] == OtherWay("diagonal", 0.0, 2 * 4 * N * D)
    assert "diagonal" in found


def test_a_diagonal_by_multiplying():
    eye = one("ones", "convert", 11, (4,), (N, N))
    product = one("diagonal", "multiply", 8, (5, 11), (N, N))
    assert "scaled" in of(*MADE, eye, product, X, SCALED, root=10)


@pytest.mark.parametrize(
    "diagonal",
    [
        pytest.param(one("d", "select", 8, (4, 12, 7), (N, N)), id="a matrix"),
        pytest.param(one("d", "select", 8, (4, 5, 12), (N, N)), id="something beside it"),
        pytest.param(one("d", "add", 8, (5, 7), (N, N)), id="a sum"),
    ],
)
def test_what_is_no_diagonal(diagonal):
    matrix = one("matrix", "parameter", 12, (), (N, N))
    assert of(*MADE, matrix, diagonal, X, SCALED, root=10) == {}


def test_what_jax_pushes_forward_for_an_identity_is_not_the_programs():
    scope = "jit(step)/vmap(jvp())/dot_general"
    pushed = one("scaled", "dot", 10, (8, 9), (N, D), F32, summing(1), scope=scope)
    assert of(*MADE, DIAGONAL, X, pushed, root=10) == {}


BIG, NARROW = 512, 4
A = one("a", "parameter", 1, (), (BIG, NARROW))
C = one("c", "parameter", 2, (), (NARROW, BIG))
AC = one("ac", "dot", 3, (1, 2), (BIG, BIG), F32, summing(1))
WIDE = one("wide", "parameter", 4, (), (BIG, D))
ACX = one("acx", "dot", 5, (3, 4), (BIG, D), F32, summing(1))
LEFT = (2 * BIG * NARROW * D) / (BIG * NARROW * BIG + BIG * BIG * D)


def test_a_costly_order():
    found = of(A, C, AC, WIDE, ACX, root=5)
    assert found == {name: OtherWay("order", pytest.approx(LEFT), 0) for name in ("ac", "acx")}


def test_from_the_other_side_and_through_a_layout():
    turned = one("turned", "transpose", 6, (3,), (BIG, BIG))
    left = one("left", "parameter", 4, (), (D, BIG))
    product = one("acx", "dot", 5, (4, 6), (D, BIG), F32, summing(1))
    assert of(A, C, AC, turned, left, product, root=5)["ac"].left_ratio == pytest.approx(LEFT)


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(one("bent", "tanh", 6, (3,), (BIG, BIG)), id="a function"),
        pytest.param(one("added", "add", 6, (3, 3), (BIG, BIG)), id="a sum"),
    ],
)
def test_with_something_in_between_the_order_is_fixed(between):
    product = one("acx", "dot", 5, (6, 4), (BIG, D), F32, summing(1))
    assert of(A, C, AC, between, WIDE, product, root=5) == {}


def test_what_leaves_the_program_has_to_be_made():
    both = instruction("both", "tuple", message((2, 13), (4, shape(1))), 9, (3, 5))
    assert of(A, C, AC, WIDE, ACX, both, root=9) == {}


def test_a_library_that_bends_its_result():
    sums = b'"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}'
    told = b'{"gemm_backend_config":{"epilogue":"RELU",' + sums + b"}}"
    bent = one(
        "ac", "custom-call", 3, (1, 2), (BIG, BIG), F32, (28, "__cublas$lt$matmul"), (43, told)
    )
    plain = one(
        "ac", "custom-call", 3, (1, 2), (BIG, BIG), F32, (28, "__cublas$lt$matmul"),
        (43, told.replace(b"RELU", b"DEFAULT")),
    )  # fmt: skip
    assert of(A, C, bent, WIDE, ACX, root=5) == {}
    assert "ac" in of(A, C, plain, WIDE, ACX, root=5)


def test_many_products_at_once_are_left_alone():
    a, c = one("a", "parameter", 1, (), (8, 64, 4)), one("c", "parameter", 2, (), (8, 4, 64))
    many = one(
        "ac", "dot", 3, (1, 2), (8, 64, 64), F32, (30, message((1, varint(2)), (2, varint(1))))
    )
    x = one("wide", "parameter", 4, (), (8, 64, 4))
    product = one(
        "acx", "dot", 5, (3, 4), (8, 64, 4), F32, (30, message((1, varint(2)), (2, varint(1))))
    )
    assert of(a, c, many, x, product, root=5) == {}


def test_a_good_order():
    narrow = one("ac", "parameter", 3, (), (NARROW, D))
    last = one("acx", "dot", 5, (1, 3), (BIG, D), F32, summing(1))
    first = one("ac", "dot", 3, (2, 4), (NARROW, D), F32, summing(1))
    assert of(A, C, WIDE, first, last, root=5) == {}
    assert of(A, narrow, last, root=5) == {}
