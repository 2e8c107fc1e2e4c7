import pytest

from builders import TraceBuilder
from device_steps import Work, device_bound
from program import Program

SIDE = [4096, 4096]
GEMM = "cutlass_80_tensorop_d884gemm_64x32_16x4_tn_align1"
ADD = "void at::native::vectorized_elementwise_kernel<2, at::native::CUDAFunctor_add<double> >(int)"
DOUBLE = [
    Work(GEMM, 5_000, "aten::mm", [SIDE, SIDE], ["double", "double"]),
    Work(ADD, 1_000, "aten::add", [SIDE, SIDE, []], ["double", "double", "Scalar"]),
]
TF32 = "sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x128x32_execute_kernel__5x_cublas"
SINGLE = Work(TF32, 400, "aten::mm", [SIDE, SIDE], ["float", "float"])


def test_products_take_what_tf32_takes_and_the_rest_half(outcome):
    (finding,) = outcome("fp64-by-accident", device_bound([*DOUBLE, SINGLE])).findings
    products, rest = finding.changes
    flops = 2 * 4096**3
    expected_us = 7 + flops / (494.7e12 * 0.67) * 1e6
    assert products.factor == pytest.approx(expected_us / 5_000)
    assert rest.factor == 0.5
    assert finding.cost_ns_per_step == 6_000_000
    assert finding.evidence[-1].name == GEMM


def test_the_peaks_decide_where_sizes_were_not_recorded(outcome):
    trace = device_bound([Work(GEMM, 5_000, "aten::mm"), SINGLE])
    (finding,) = outcome("fp64-by-accident", trace).findings
    assert finding.changes[0].factor == pytest.approx(66.9 / 494.7)


def test_is_quiet_on_single_precision(outcome):
    assert outcome("fp64-by-accident", device_bound([SINGLE])).answer == "clear"


def test_a_solver_that_works_in_double_precision_throughout_may_need_it(outcome):
    said = outcome("fp64-by-accident", device_bound(DOUBLE))
    assert (said.answer, said.fits) == ("not checked", True)


@pytest.mark.parametrize(
    ("solver", "answer"),
    [("aten::cholesky_inverse", "not checked"), ("aten::mm", "found")],
    ids=["a Gaussian process", "a model"],
)
def test_what_is_trained_and_factorises_may_need_it(outcome, solver, answer):
    p = Program()
    for _ in p.steps(6):
        with p.row(solver, shapes=[SIDE], dtypes=["double"]):
            p.kernel(GEMM, 600)
        with p.row("autograd::engine::evaluate_function: MmBackward0"):
            p.kernel(GEMM, 400)
    assert outcome("fp64-by-accident", p.trace()).answer == answer


def test_a_few_doubles_are_no_finding(ranked):
    gemm = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
    work = [Work(gemm, 5_000, "aten::mm"), Work(ADD, 5, "aten::add", [[8]], ["double"])]
    assert ranked(device_bound(work)) == []


def test_cannot_judge_without_a_device(outcome):
    assert outcome("fp64-by-accident", TraceBuilder().trace()).answer == "not checked"


@pytest.mark.corpus
def test_labelled(labelled):
    slow = labelled("c15_fp64_by_accident.slow")
    assert next(iter(slow)) == "fp64-by-accident"
    assert slow["fp64-by-accident"] == pytest.approx(8.48, rel=0.1)
    assert "fp64-by-accident" not in labelled("c15_fp64_by_accident.fixed")
