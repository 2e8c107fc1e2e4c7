import pytest

from builders import TraceBuilder
from device_steps import Work, device_bound

ODD = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(Params)"
BF16 = ["c10::BFloat16", "c10::BFloat16"]


def product(kernel=ODD, takes_us=1_000.0, columns=4095):
    return Work(kernel, takes_us, "aten::mm", [[4096, 4096], [4096, columns]], BF16)


def test_names_the_sizes_and_predicts_an_aligned_product(outcome):
    (finding,) = outcome("misaligned-dims", device_bound([product()])).findings
    expected_us = 7 + 2 * 4096**3 / (989.4e12 * 0.85) * 1e6
    assert finding.at_best[0].factor == pytest.approx(expected_us / 1_000)
    copied_us = 2 * 4096 * (4095 + 4096) / (3.35e12 * 0.9) * 1e6  # read, and written padded
    assert finding.changes[0].factor == pytest.approx((expected_us + copied_us) / 1_000, rel=0.01)
    assert finding.evidence[-1].value == "4095"
    assert finding.hint == "size = 4096  # in place of 4095"
    assert finding.cost_ns_per_step == 1_000_000


def test_a_product_that_is_fast_enough_stays_as_it_is(ranked):
    assert ranked(device_bound([product(takes_us=150)])) == []


def test_vectors_are_not_misaligned(outcome):
    work = Work(ODD, 1_000, "aten::mm", [[4096, 4095], [4095, 1]], BF16)
    (finding,) = outcome("misaligned-dims", device_bound([work])).findings
    assert finding.evidence[-1].value == "4095"


def test_double_precision_needs_no_wide_loads(outcome):
    gemm = "cutlass_80_tensorop_d884gemm_64x32_16x4_tn_align1"
    assert outcome("misaligned-dims", device_bound([product(gemm)])).answer == "clear"


def test_is_quiet_on_aligned_kernels(outcome):
    gemm = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_tn_align8>(P)"
    assert outcome("misaligned-dims", device_bound([product(gemm, columns=4096)])).answer == "clear"


def test_speaks_without_recorded_sizes(outcome):
    (finding,) = outcome("misaligned-dims", device_bound([Work(ODD, 1_000, "aten::mm")])).findings
    assert (finding.changes[0].factor, finding.at_best[0].factor) == (0.5, 0.2)
    assert "because" not in finding.summary


def test_cannot_judge_without_a_device(outcome):
    assert outcome("misaligned-dims", TraceBuilder().trace()).answer == "not checked"


@pytest.mark.corpus
def test_labelled(labelled):
    slow = labelled("c36_misaligned_dims.slow")
    assert next(iter(slow)) == "misaligned-dims"
    assert slow["misaligned-dims"] == pytest.approx(8.56, rel=0.1)
    assert "misaligned-dims" not in labelled("c36_misaligned_dims.fixed")
