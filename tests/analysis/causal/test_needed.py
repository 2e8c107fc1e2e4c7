import pytest

from pinchpoint.analysis.causal.needed import FACTORISATION_FLOPS, needed, takes_narrow_rows
from pinchpoint.analysis.costs import OperatorCall

F, L = "float", "long int"


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes", "expected"),
    [
        # 10 rows of 4 floats read and written, 10 indices of 8 bytes
        ("aten::index", ((1000, 4), ((10,),)), (F, ""), 2 * 10 * 16 + 80),
        # two indices that belong together name 10 elements
        ("aten::index", ((100, 100), ((10,), (10,))), (F, ""), 2 * 10 * 4 + 160),
        # 10 rows read, the same rows of the table read and written
        ("aten::index_add_", ((1000, 4), (), (10,), (10, 4)), (F, "", L, F), 3 * 160),
        # a table smaller than what is added to it is read and written once
        ("aten::index_add_", ((2, 4), (), (10,), (10, 4)), (F, "", L, F), 160 + 2 * 32),
        ("aten::_index_put_impl_", ((1000, 4), (), (10, 4)), (F, "", F), 3 * 160),
        ("aten::scatter_add_", ((1000, 4), (), (10, 4), (10, 4)), (F, "", L, F), 3 * 160),
        # 64 matrices of 3 x 3: read, and two results written
        ("aten::linalg_qr", ((64, 3, 3), ()), (F, ""), 3 * 64 * 36),
        ("aten::grid_sampler_2d", ((1, 2, 8, 8), (1, 4, 4, 2)), (F, F), 512 + 128 + 128),
        ("aten::grid_sampler_2d_backward",
         ((1, 2, 4, 4), (1, 2, 8, 8), (1, 4, 4, 2)), (F, F, F), 128 + 2 * (512 + 128)),
    ],
)  # fmt: skip
def test_bytes(name, shapes, dtypes, expected):
    assert needed(OperatorCall(name, shapes, dtypes)).bytes == expected


def test_flops_of_a_batch_of_factorisations():
    found = needed(OperatorCall("aten::linalg_qr", ((64, 3, 3), ()), (F, "")))
    assert found.flops == FACTORISATION_FLOPS * 64 * 27


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes"),
    [
        pytest.param("aten::index", ((1000, 4), ()), (F, ""), id="indices not recorded"),
        pytest.param("aten::linalg_qr", ((4, 3, 3), ()), (F, ""), id="too few to fill a device"),
        pytest.param("aten::linalg_qr", ((64, 512, 512), ()), (F, ""), id="large matrices"),
        pytest.param("aten::index_add_", ((9,), (), (9,), (9,)), ("odd", "", L, F), id="type"),
        pytest.param("aten::unheard_of", ((9,),), (F,), id="no model"),
    ],
)
def test_what_is_not_known(name, shapes, dtypes):
    assert needed(OperatorCall(name, shapes, dtypes)) is None


def test_the_rest_is_known_from_its_costs():
    assert needed(OperatorCall("aten::mm", ((2, 3), (3, 4)), (F, F))).flops == 48


LARGE = 1 << 26  # rows: a table that no cache holds


@pytest.mark.parametrize(
    ("name", "shapes", "values", "narrow"),
    [
        ("aten::index_select", ((LARGE, 8), (), (9,)), ("", "0"), True),  # rows of 32 bytes
        ("aten::index_select", ((LARGE, 32), (), (9,)), ("", "0"), False),  # of a line
        ("aten::index_select", ((32, LARGE), (), (9,)), ("", "1"), False),  # as it could lie
        ("aten::index_select", ((1000, 8), (), (9,)), ("", "0"), False),  # the cache holds it
        ("aten::embedding", ((LARGE, 8), (9,)), (), True),
        ("aten::gather", ((LARGE, 8), (), (9, 8)), ("", "0"), True),
        ("aten::take", ((LARGE, 256), (9,)), (), True),
        ("aten::index", ((LARGE, 8), ((9,),)), (), True),
        ("aten::index", ((LARGE, 64), ((9,),)), (), False),
        ("aten::index_put_", ((LARGE,), (), (9,), ()), ("", "", "", "False"), True),
        ("aten::index_put_", ((LARGE,), (), (9,), ()), ("", "", "", "True"), False),  # added there
        ("aten::index_put_", ((LARGE, 64), (), (9, 64), ()), ("", "", "", "False"), False),
        ("aten::mm", ((LARGE, 8), (8, 8)), (), False),
    ],
)
def test_rows_narrower_than_a_line(name, shapes, values, narrow):
    dtypes = tuple(F if shape else "" for shape in shapes)
    call = OperatorCall(name, shapes, dtypes, values)
    assert takes_narrow_rows(call) is narrow
