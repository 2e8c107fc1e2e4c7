import pytest

from builders import TraceBuilder
from device_steps import Work, device_bound

WALK = "void (anonymous namespace)::indexing_backward_kernel_small_stride<float>(long const*)"
GATHER = "void at::native::index_elementwise_kernel<128, 4>(int)"
LOOKUPS, HEADS = 65_536, 12
ALONE_US = LOOKUPS * HEADS * 35 / 3.35e12 * 1e6  # as atomic additions on an H100: 8.2 µs


def put_back(takes_us, kernel=WALK):
    shapes = [[32, HEADS], [], [LOOKUPS, HEADS], [], []]
    types = ["float", "", "float", "Scalar", "Scalar"]
    return device_bound([Work(kernel, takes_us, "aten::_index_put_impl_", shapes, types)])


def test_split_runs_take_a_twentieth(outcome):
    (finding,) = outcome("index-backward-duplicates", put_back(2_500)).findings
    assert finding.changes[0].factor == pytest.approx([1 / 37] * len(finding.changes[0].factor))


def test_no_less_than_the_additions_take(outcome):
    (finding,) = outcome("index-backward-duplicates", put_back(10 * ALONE_US)).findings
    assert finding.changes[0].factor[0] == pytest.approx(0.1, rel=1e-3)


def test_rows_that_rarely_repeat_are_fine(outcome):
    assert outcome("index-backward-duplicates", put_back(2 * ALONE_US)).answer == "clear"


def test_writing_by_index_adds_nothing(outcome):
    assert outcome("index-backward-duplicates", put_back(2_500, GATHER)).answer == "clear"


def test_cannot_judge_without_shapes(outcome):
    b = TraceBuilder()
    b.op("aten::_index_put_impl_", 0, 10)
    b.launch(1, 5, WALK, 8, 500)
    assert outcome("index-backward-duplicates", b.trace()).answer == "not checked"
