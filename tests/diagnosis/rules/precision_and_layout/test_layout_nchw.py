import pytest

from builders import TraceBuilder
from device_steps import Work, device_bound
from program import Program

TO = "void cudnn::engines_precompiled::nchwToNhwcKernel<float>()"
BACK = "void cudnn::engines_precompiled::nhwcToNchwKernel<float>()"
CONV = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_kernel"
NORM = "void at::native::batch_norm_collect_statistics_kernel<c10::BFloat16>()"
IMAGE, FIRST, LAST = [64, 128, 56, 56], [401408, 3136, 56, 1], [401408, 1, 7168, 128]
BYTES = 64 * 128 * 56 * 56 * 2


def network(strides, *, conversions=True):
    def conv(kernel, takes_us):
        operator = "aten::cudnn_convolution"
        return Work(kernel, takes_us, operator, [IMAGE], ["c10::BFloat16"], [strides])

    norm = Work(NORM, 300, "aten::native_batch_norm", [IMAGE], ["c10::BFloat16"], [strides])
    around = [conv(TO, 60), conv(CONV, 100), conv(BACK, 60)]
    return [*(around if conversions else around[1:2]), norm]


def test_drops_conversions_and_speeds_normalisation_up(outcome):
    (finding,) = outcome("layout-nchw", device_bound(network(FIRST))).findings
    conversions, norms = finding.changes
    assert conversions.factor == 0
    assert finding.cost_ns_per_step == 120_000
    after_us = 3 * BYTES / (3350e9 * 0.9 * 0.55) * 1e6
    assert norms.factor == pytest.approx(after_us / 300)


def test_normalisation_that_has_the_right_order_stays(outcome):
    (finding,) = outcome("layout-nchw", device_bound(network(LAST))).findings
    assert len(finding.changes) == 1


def test_is_quiet_without_conversions(outcome):
    trace = device_bound(network(LAST, conversions=False))
    assert outcome("layout-nchw", trace).answer == "clear"


@pytest.mark.parametrize(("operator", "answer"), [("conv1d", "clear"), ("conv2d", "found")])
def test_over_one_dimension_there_is_no_order_to_keep(outcome, operator, answer):
    p = Program()
    for number in p.steps(4):
        with p.row(f"aten::{operator}"), p.row("aten::cudnn_convolution", sequence=number):
            for kernel, takes_us in ((TO, 60), (CONV, 100), (BACK, 60)):
                p.kernel(kernel, takes_us)
        p.sync()
    assert outcome("layout-nchw", p.trace()).answer == answer


def test_cannot_judge_without_a_device(outcome):
    assert outcome("layout-nchw", TraceBuilder().trace()).answer == "not checked"


@pytest.mark.corpus
def test_labelled(labelled):
    slow = labelled("c37_layout_nchw.slow")
    assert next(iter(slow)) == "layout-nchw"
    assert slow["layout-nchw"] == pytest.approx(12.4, rel=0.1)
    assert "layout-nchw" not in labelled("c33_cudnn_autotune_churn.slow")
