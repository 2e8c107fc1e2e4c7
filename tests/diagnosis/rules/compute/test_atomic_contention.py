import pytest

from builders import TraceBuilder
from device_steps import Work, device_bound

ADDS = "void at::native::indexFuncLargeIndex<float, long, unsigned int, 2, 2, -2, true>(int)"
SCATTERS = "void at::native::_scatter_gather_elementwise_kernel<128, 8, ReduceAdd>(int)"
ROWS, ADDED, WIDTH = 500_000, 8_000_000, 32
H100_BYTES_PER_S = 3.35e12
ALONE_US = ADDED * WIDTH * 35 / H100_BYTES_PER_S * 1e6  # 35 bytes' worth of time each


def adding(takes_us, *, strides=None, width=WIDTH, dim="0"):
    shapes = [[ROWS, width], [], [ADDED], [ADDED, width], []]
    types = ["float", "Scalar", "long int", "float", "Scalar"]
    values = ["", dim, "", "", "1"]
    return device_bound([Work(ADDS, takes_us, "aten::index_add_", shapes, types, strides, values)])


def scattering(takes_us):
    shapes = [[ROWS, WIDTH], [], [ADDED, WIDTH], [ADDED, WIDTH]]
    types = ["float", "Scalar", "long int", "float"]
    values = ["", "0", "", ""]
    return device_bound(
        [Work(SCATTERS, takes_us, "aten::scatter_add_", shapes, types, None, values)]
    )


@pytest.mark.parametrize("trace", [adding(5 * ALONE_US), scattering(5 * ALONE_US)])
def test_takes_the_time_of_additions_that_do_not_meet(outcome, trace):
    (finding,) = outcome("atomic-contention", trace).findings
    assert finding.changes[0].factor == pytest.approx(1 / 5, rel=1e-3)
    assert finding.evidence[-2].value == ADDED * WIDTH


def test_random_targets_are_quick_enough(outcome):
    assert outcome("atomic-contention", adding(1.8 * ALONE_US)).answer == "clear"


def test_narrow_rows_take_a_piece_of_memory_each(outcome):
    """Four bytes a target: twice the time of an addition in a wide row is not queueing."""
    trace = adding(4 * ALONE_US / WIDTH, width=1)
    assert outcome("atomic-contention", trace).answer == "clear"


def test_a_source_across_its_layout_is_another_matter(outcome):
    across = [[WIDTH, 1], [], [1], [1, ADDED], []]
    assert outcome("atomic-contention", adding(5 * ALONE_US, strides=across)).answer == "clear"


def test_cannot_judge_without_shapes(outcome):
    b = TraceBuilder()
    b.op("aten::index_add_", 0, 10)
    b.launch(1, 5, ADDS, 8, 500)
    assert outcome("atomic-contention", b.trace()).answer == "not checked"
    assert outcome("atomic-contention", TraceBuilder().trace()).answer == "not checked"
