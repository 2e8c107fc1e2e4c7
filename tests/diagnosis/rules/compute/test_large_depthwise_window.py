"""Depthwise convolutions by the size of their window; milliseconds of kernels on an H100."""

import pytest

from program import Program

MS = 1_000_000
KERNEL = "at::native::conv_depthwise2d_forward_kernel_generic<float, int>"


def blurring(window, *, takes_ms=18.0, channels=3, groups=3, operator="aten::_conv_depthwise2d"):
    """Steps of one convolution over 48 pictures of 448 × 448, and 40 ms of other work."""
    given = {
        "shapes": [
            [48, channels, *(447 + size for size in window)],
            [channels, channels // groups, *window],
            *([],) * 5,
        ],
        "dtypes": ["float", "float", "ScalarList", "", *["ScalarList"] * 3],
        "values": ["", "", str([*window]), "", "[1, 1]", "[0, 0]", "[1, 1]"],
    }
    p = Program()
    for _ in p.steps(6):
        with p.frame("views.py(98): soften"), p.row(operator, **given):
            p.kernel(KERNEL, takes_ms * 1000)
        with p.row("aten::mm"):
            p.kernel("gemm", 40_000)
        p.sync()
    return p.trace()


def test_a_large_window_is_told_with_two_lines_and_a_transform(outcome, gain):
    trace = blurring((45, 45))
    (finding,) = outcome("large-depthwise-window", trace).findings
    assert "window of 45 × 45 compute 2,025 products for each element" in finding.summary
    assert "no matrix units" in finding.summary
    said = {fact.what: fact.value for fact in finding.evidence}
    assert said["of two lines"] == 90
    # 48 × 3 × 537² float32 eight times at 3.35 TB/s × 0.88: 0.45 ms.
    assert said["a Fourier transform there and back"] == pytest.approx(0.45 * MS, rel=0.05)
    assert gain(trace, "large-depthwise-window") == pytest.approx(17.5 * MS, rel=0.05)


def test_matrix_units_are_not_told_of_what_they_cannot_multiply(outcome):
    said = outcome("slow-operator", blurring((45, 45)))
    assert not any("matrix units" in one.summary for one in said.findings)


@pytest.mark.parametrize(
    "other",
    [
        {"window": (7, 7)},  # bound by memory
        {"window": (45, 1)},  # is a line already
        {"window": (45, 45), "groups": 1},  # matrix units multiply all channels
        {"window": (45, 45), "takes_ms": 1.0},  # is quick: as by transforms
    ],
)
def test_what_another_way_would_not_make_quick(outcome, other):
    assert outcome("large-depthwise-window", blurring(**other)).answer == "clear"


def test_a_small_part_of_the_step_is_seen(outcome):
    said = outcome("large-depthwise-window", blurring((13, 13), takes_ms=2.0))
    assert (said.answer, said.why) == ("smaller", "smaller than 5 % of the step: 3.9 %")
