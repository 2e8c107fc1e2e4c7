import pytest

from pinchpoint.analysis.host.input_arguments import (
    elements,
    input_dtypes,
    input_shapes,
    parsed,
    tensor_shapes,
)


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("[[64, 3, 7, 7], [], [8]]", ((64, 3, 7, 7), (), (8,))),
        ("[[[1, 2], [3]], []]", (((1, 2), (3,)), ())),
        ('[[1], "x", null]', ((1,), None, None)),
        ("[[1, true]]", (None,)),
        ("[[-1]]", (None,)),
        ("[]", ()),
    ],
)
def test_shapes_are_read_input_by_input(text, shapes):
    assert input_shapes(text) == shapes


@pytest.mark.parametrize("text", ["", "{}", "7", "[[1,", "nonsense", "[" * 100_000, '"\\ud800"'])
def test_text_that_is_no_list_is_unknown(text):
    assert parsed(text) is None
    assert input_shapes(text) is None
    assert input_dtypes(text) is None
    assert tensor_shapes(text) == ()


def test_lists_of_tensors_are_laid_flat():
    assert tensor_shapes("[[[1, 2], [3], []], [4], []]") == ((1, 2), (3,), (4,))


def test_types_are_read_input_by_input():
    assert input_dtypes('["float", "", ["x"]]') == ("float", "", "")


def test_elements_of_a_scalar_are_one():
    assert elements(()) == 1
    assert elements((2, 3, 4)) == 24
