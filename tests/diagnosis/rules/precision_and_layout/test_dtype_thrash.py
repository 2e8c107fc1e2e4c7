import pytest

from builders import TraceBuilder
from device_steps import Work, device_bound

BIG = [65536, 512]
KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::Functor<float> >(int)"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
NORM = "void at::native::vectorized_layer_norm_kernel<float, float, false>(int, float)"
NARROW, WIDE = "c10::BFloat16", "float"


def cast(target, source):
    return Work(KERNEL, 100, "aten::copy_", [BIG, BIG, []], [target, source, "Scalar"])


UP, DOWN = cast(WIDE, NARROW), cast(NARROW, WIDE)
SILU = Work(KERNEL, 150, "aten::silu", [BIG], [WIDE])
NARROW_SILU = Work(KERNEL, 80, "aten::silu", [BIG], [NARROW])
PRODUCT = Work(GEMM, 200, "aten::mm", [BIG, [512, 512]], [NARROW, NARROW])
NORMED = Work(NORM, 100, "aten::native_layer_norm", [BIG], [WIDE])


def test_drops_the_casts_and_halves_what_lies_between(outcome):
    trace = device_bound([PRODUCT, UP, SILU, DOWN])
    (finding,) = outcome("dtype-thrash", trace).findings
    casts, between = finding.changes
    assert len(casts.device_ops) == 2 * len(between.device_ops)
    assert between.factor == 0.5
    assert finding.cost_ns_per_step == 200_000
    assert finding.evidence[-1].value == 150_000


def test_is_the_first_finding_and_the_prediction_is_what_is_left(ranked):
    assert ranked(device_bound([PRODUCT, UP, SILU, DOWN]))[0] == "dtype-thrash"


def test_casts_around_a_normalisation_are_autocast_at_work(outcome):
    trace = device_bound([PRODUCT, UP, NORMED, DOWN])
    assert outcome("dtype-thrash", trace).answer == "clear"


def test_a_few_casts_are_no_finding(outcome):
    said = outcome("dtype-thrash", device_bound([*[PRODUCT] * 20, UP, SILU, DOWN]))
    assert (said.answer, said.why) == ("smaller", "smaller than 10 % of the device's time: 4.5 %")


def test_is_quiet_in_one_type(outcome):
    trace = device_bound([PRODUCT, NARROW_SILU, NARROW_SILU])
    assert outcome("dtype-thrash", trace).answer == "clear"


def test_cannot_judge_without_shapes(outcome):
    b = TraceBuilder()
    b.op("aten::copy_", 0, 10)
    b.launch(1, 5, KERNEL, 8, 500)
    assert outcome("dtype-thrash", b.trace()).answer == "not checked"


@pytest.mark.corpus
def test_labelled(labelled):
    slow = labelled("c41_dtype_thrash.slow")
    assert next(iter(slow)) == "dtype-thrash"
    assert slow["dtype-thrash"] == pytest.approx(19.0, rel=0.1)
    assert "dtype-thrash" not in labelled("c41_dtype_thrash.fixed")
