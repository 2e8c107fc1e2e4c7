"""Kernels of a graph and the instructions of its program."""

import pytest

from pinchpoint.importers.xplane.graphs import name_kernels_of_graphs

ORDER = [("loop.1", "loop.1"), ("dot.2", None), ("dot.3", None), ("add-fusion.4", "add-fusion.4")]


def named(*kernels, order=ORDER):
    rows = [
        {"op": "command_buffer", "kernel": kernel, "device": 0, "start_ns": at}
        for at, kernel in enumerate(kernels)
    ]
    name_kernels_of_graphs(order, {name for name, _ in ORDER}, rows)
    return [row["op"] for row in rows]


ALL = [name for name, _ in ORDER]


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        pytest.param(("loop_1", "gemm", "gemm", "add_fusion_4"), ALL, id="as the program has them"),
        pytest.param(("loop_1", "gemm", "gemm", "loop_1"), [*ALL[:3], "add-fusion.4"], id="equal"),
        pytest.param(
            ("loop_1", "gemm", "gemm", "add_fusion_4", "memset"),
            [*ALL, "command_buffer"],
            id="one more than the program has",
        ),
        pytest.param(
            ("loop_1", "gemm", "add_fusion_4"),
            ["loop.1", "command_buffer", "add-fusion.4"],
            id="fewer of libraries: which is which is not known",
        ),
        pytest.param(("gemm", "gemm"), ["command_buffer"] * 2, id="none that tells"),
    ],
)
def test_kernels_are_named_where_names_or_order_tell(kernels, expected):
    assert named(*kernels) == expected


def test_without_one_order_names_alone_tell():
    assert named("loop_1", "gemm", order=()) == ["loop.1", "command_buffer"]


def test_equal_fusions_run_under_one_name_and_the_order_tells_them_apart():
    """The second addition is compiled as the first; its product is two kernels."""
    order = [("a.1", "a.1"), ("dot.2", None), ("b.3", "b.3"), ("dot.4", None), ("a.7", "a.1")]
    found = named("a_1", "Memset 0", "gemm", "b_3", "gemm", "a_1", "a_1", order=order)
    assert found == ["a.1", "dot.2", "dot.2", "b.3", "dot.4", "a.7", "a.1"]


def test_an_equal_fusion_of_which_the_program_does_not_say_so_is_the_next_with_that_name():
    order = [("turn", "turn"), ("dot.2", None), ("turn.3", "turn.3"), ("dot.4", None)]
    assert named("turn", "gemm", "turn", "gemm", "memset", order=order) == [
        "turn", "dot.2", "turn.3", "dot.4", "dot.4",
    ]  # fmt: skip
