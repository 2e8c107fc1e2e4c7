"""Kernels of a graph and the instructions of its program."""

import pytest

from pinchpoint.importers.xplane.graphs import name_kernels_of_graphs

ORDER = [("loop.1", "loop.1"), ("dot.2", None), ("dot.3", None), ("add-fusion.4", "add-fusion.4")]


def named(*kernels):
    rows = [
        {"op": "command_buffer", "kernel": kernel, "device": 0, "start_ns": at}
        for at, kernel in enumerate(kernels)
    ]
    name_kernels_of_graphs(ORDER, {name for name, _ in ORDER}, rows)
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
