import pytest

from builders import TraceBuilder
from device_steps import Work, device_bound
from program import Program

BIG = [65536, 1024]
BYTES = 65536 * 1024 * 2
KERNEL = "void at::native::vectorized_elementwise_kernel<8, Functor<c10::BFloat16> >(int)"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
PRODUCT = Work(GEMM, 500, "aten::mm", [BIG, [1024, 1024]], ["c10::BFloat16"] * 2)


def pointwise(operator="aten::silu", inputs=1, takes_us=90, dtype="c10::BFloat16"):
    return Work(KERNEL, takes_us, operator, [BIG] * inputs, [dtype] * inputs)


CHAIN = [pointwise(), pointwise("aten::sigmoid"), pointwise("aten::mul", 2, 135)]


def test_the_chain_moves_what_one_kernel_moves(outcome):
    (finding,) = outcome("unfused-pointwise", device_bound([PRODUCT, *CHAIN])).findings
    moved, between = (2 + 2 + 3) * BYTES, 2 * 2 * BYTES
    assert finding.changes[0].factor == pytest.approx((moved - between) / moved)
    assert finding.cost_ns_per_step == 315_000
    assert finding.evidence[-1].value == 3


def test_a_single_gate_between_products_is_healthy(outcome):
    trace = device_bound([PRODUCT, pointwise(), PRODUCT, pointwise("aten::add", 2, 135)])
    assert outcome("unfused-pointwise", trace).answer == "clear"


def test_a_loop_over_one_operator_measures_it(outcome):
    trace = device_bound([pointwise("aten::add", 2, 135)] * 8)
    assert outcome("unfused-pointwise", trace).answer == "clear"


def test_short_chains_beside_much_else_do_not_pay(outcome):
    said = outcome("unfused-pointwise", device_bound([*[PRODUCT] * 10, *CHAIN]))
    assert (said.answer, said.why) == ("smaller", "smaller than 10 % of the device's time: 5.9 %")


def test_slow_kernels_have_another_problem(outcome):
    slow = [pointwise(name, takes_us=400) for name in ("aten::silu", "aten::exp", "aten::tanh")]
    assert outcome("unfused-pointwise", device_bound(slow)).answer == "clear"


def test_casts_there_and_back_are_another_cause(outcome):
    def cast(target, source):
        return Work(KERNEL, 135, "aten::copy_", [BIG, BIG, []], [target, source, "Scalar"])

    up, down = cast("float", "c10::BFloat16"), cast("c10::BFloat16", "float")
    trace = device_bound([PRODUCT, up, pointwise(dtype="float", takes_us=180), down])
    assert outcome("unfused-pointwise", trace).answer == "clear"


def test_cannot_judge_without_shapes(outcome):
    b = TraceBuilder()
    b.op("aten::silu", 0, 10)
    b.launch(1, 5, KERNEL, 8, 500)
    assert outcome("unfused-pointwise", b.trace()).answer == "not checked"


def differentiated(*, twice):
    """A chain of three in a backward pass, whose operators are numbered if that is differentiated,
    and a product."""
    p = Program()
    for _ in p.steps(6):
        node = "autograd::engine::evaluate_function: TanhBackward0"
        with p.row(node, sequence=1), p.row("TanhBackward0", sequence=1):
            for number, name in enumerate(("aten::silu", "aten::sigmoid", "aten::exp"), 2):
                numbered = {"sequence": number} if twice else {}
                given = {"shapes": [BIG], "dtypes": ["c10::BFloat16"]}
                with p.row(name, **given, **numbered):
                    p.kernel(KERNEL, 90)
        p.kernel(GEMM, 500)
        p.sync()
    return p.trace()


def test_what_is_differentiated_twice_no_compiler_takes(outcome):
    assert outcome("unfused-pointwise", differentiated(twice=False)).answer == "found"
    said = outcome("unfused-pointwise", differentiated(twice=True))
    assert (said.answer, "differentiated twice" in said.why) == ("not checked", True)


@pytest.mark.corpus
def test_labelled(labelled):
    assert "unfused-pointwise" not in labelled("c41_dtype_thrash.slow")
    assert "unfused-pointwise" not in labelled("c38_non_contiguous.fixed")
    assert "unfused-pointwise" not in labelled("c35_no_mixed_precision.slow")
    assert "unfused-pointwise" not in labelled("c39_unfused_attention.slow")


def test_a_program_that_is_compiled_has_another_cause(outcome):
    fused = Work("triton_poi_fused_add_mul_0", 90, "triton_poi_fused_add_mul_0")
    assert outcome("unfused-pointwise", device_bound([PRODUCT, *CHAIN, fused])).answer == "clear"
