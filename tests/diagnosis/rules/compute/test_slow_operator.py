"""An operator far from its limit; milliseconds."""

import pytest

from pinchpoint.analysis.replay import DropDeviceOps, LimitDeviceOps
from pinchpoint.diagnosis.engine import diagnose
from program import Program

ROWS, WIDTH, TABLE = 200_000, 256, 1_000
F, L = "float", "long int"
ADDING = {
    "shapes": [[TABLE, WIDTH], [], [ROWS], [ROWS, WIDTH], []],
    "dtypes": [F, "Scalar", L, F, "Scalar"],
}
# 2 × 8192³ FLOPs in bf16 take 1.1 ms at the peak of an H100, 1.6 at the share that is reached.
PRODUCT = {
    "shapes": [[8192, 8192], [8192, 8192]],
    "dtypes": ["c10::BFloat16", "c10::BFloat16"],
}
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute"
# 100 million floats read and written: 0.24 ms at the peak, 0.30 at the share that is reached.
POINTWISE = {"shapes": [[100_000_000]], "dtypes": [F]}


def step_of(*operators):
    """Steps of (name, given, kernel, ms, launches)."""
    p = Program()
    for _ in p.steps(6):
        for name, given, kernel, ms, launches in operators:
            with p.frame("model.py(7): forward"), p.row(name, **given):
                for _ in range(launches):
                    p.kernel(kernel, 1_000 * ms / launches)
        p.sync()
    return p.trace()


HEALTHY = ("aten::mm", PRODUCT, GEMM, 1.7, 1)


def test_atomic_additions_that_meet(outcome, ranked):
    trace = step_of(("aten::index_add_", ADDING, "indexFuncLargeIndex", 10, 1), HEALTHY)
    (finding,) = outcome("slow-operator", trace).findings
    assert finding.summary.startswith(
        "aten::index_add_ takes 10.0 ms of the device's time a step where 392 µs would do in"
        " forward (model.py:7): indexFuncLargeIndex runs at 4 % of what the machine allows,"
        " because atomic additions"
    )
    assert finding.location.function == "forward"
    assert "segment sum" in finding.fix
    (change,) = finding.changes
    assert isinstance(change, LimitDeviceOps)
    assert change.limit_ns[0] == pytest.approx(392_000, rel=0.01)
    assert ranked(trace) == ["atomic-contention"]  # which knows this case by name


def test_a_launch_for_every_matrix(outcome):
    matrices = {"shapes": [[512, 3, 3], []], "dtypes": [F, ""]}
    trace = step_of(("aten::linalg_qr", matrices, "geqr2", 5, 500), HEALTHY)
    (finding,) = outcome("slow-operator", trace).findings
    assert "one call launches 500 kernels" in finding.summary
    dropped, limited = finding.changes
    assert isinstance(dropped, DropDeviceOps)
    assert len(dropped.device_ops) == 5 * 499  # of the complete steps
    assert limited.limit_ns.tolist() == [10_000] * 5


def test_a_table_of_which_few_rows_are_touched(outcome):
    table = [6_000_000, 128]
    gradient = {
        "shapes": [[8192, 8, 128], [8192, 8], [], [], []],
        "dtypes": [F, L, "Scalar", "Scalar", "Scalar"],
        "values": ["", "", "6000000", "-1", "False"],
    }
    adam = {"shapes": [[table], [table], [table], [table]], "dtypes": ["TensorList"] * 4}
    backward = ("aten::embedding_dense_backward", gradient, "sum_and_scatter", 0.2, 1)
    update = ("aten::_fused_adam_", adam, "multi_tensor_apply_kernel", 8, 1)
    (finding,) = outcome("slow-operator", step_of(backward, update, HEALTHY)).findings
    assert "aten::_fused_adam_ takes 8.00 ms" in finding.summary
    assert "few rows" in finding.summary
    # Without the lookups the whole table is what the update needs.
    assert not outcome("slow-operator", step_of(update, HEALTHY)).findings


def test_a_tied_table_is_needed_whole(outcome):
    table = [200_000, 1024]
    gradient = {
        "shapes": [[8, 512, 1024], [8, 512], [], [], []],
        "dtypes": [F, L, "Scalar", "Scalar", "Scalar"],
        "values": ["", "", "200000", "-1", "False"],
    }
    head = {"shapes": [[4096, 1024], [1024, 200_000]], "dtypes": [F, F]}
    adam = {"shapes": [[table], [table], [table], [table]], "dtypes": ["TensorList"] * 4}
    trace = step_of(
        ("aten::embedding_dense_backward", gradient, "sum_and_scatter", 0.2, 1),
        ("aten::mm", head, "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128", 6, 1),
        ("aten::_fused_adam_", adam, "multi_tensor_apply_kernel", 2.6, 1),
    )
    assert not outcome("slow-operator", trace).findings


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param(("aten::mm", PRODUCT, GEMM, 2.5, 1), id="a product near its roof"),
        pytest.param(("aten::mul", POINTWISE, "elementwise", 0.5, 1), id="at the bandwidth"),
        pytest.param(("aten::index_add_", ADDING, "indexFunc", 0.7, 1), id="less than twice"),
        pytest.param(("aten::unheard_of", POINTWISE, "mystery", 5, 1), id="33 passes, no model"),
        pytest.param(
            ("aten::sum", {"shapes": [[10]], "dtypes": [F]}, "reduce", 0.009, 1), id="a start"
        ),
    ],
)
def test_what_is_not_far(outcome, operator):
    assert outcome("slow-operator", step_of(operator, HEALTHY)).answer == "clear"


def test_an_operator_without_a_model_that_could_pass_over_its_input_many_times(outcome, predicted):
    trace = step_of(("aten::unheard_of", POINTWISE, "mystery", 20, 1), HEALTHY)
    (finding,) = outcome("slow-operator", trace).findings
    assert "147 times what one pass over what it reads would take" in finding.summary
    # 16 passes of 0.14 ms, and the product of 1.7 ms.
    assert predicted(trace, "slow-operator") == pytest.approx(3.9e6, rel=0.05)


def test_operands_in_two_orders(outcome):
    shape = [8192, 8192]
    given = {"shapes": [shape, shape], "dtypes": [F, F], "strides": [[8192, 1], [1, 8192]]}
    for name, found in (("elementwise_kernel", 1), ("vectorized_mystery", 0)):
        trace = step_of(("aten::add", given, name, 0.6, 1))  # needs 0.3 ms
        assert len(outcome("slow-operator", trace).findings) == found


def test_where_no_other_way_is_known_it_has_to_be_much(outcome):
    norm = {"shapes": [[8192, 1024], [8192, 1024]], "dtypes": [F, F]}  # needs 38 µs
    for ms, found in ((0.3, 0), (1.0, 1)):
        trace = step_of(
            ("aten::native_layer_norm_backward", norm, "GammaBeta", ms, 1), HEALTHY, HEALTHY
        )
        assert len(outcome("slow-operator", trace).findings) == found


def test_without_shapes_nothing_is_known(outcome):
    trace = step_of(("aten::index_add_", {}, "indexFuncLargeIndex", 10, 1), HEALTHY)
    assert outcome("slow-operator", trace).answer == "clear"


def test_a_kernel_that_is_known_to_be_slow_needs_no_limit(outcome):
    (finding,) = outcome(
        "slow-operator", step_of(("aten::miopen_convolution", {}, "naive_conv_fwd", 5, 1), HEALTHY)
    ).findings
    assert "mostly in naive_conv_fwd: the library fell back" in finding.summary
    assert (finding.changes, finding.cost_ns_per_step) == ((), 5_000_000)
    small = ("aten::miopen_convolution", {}, "naive_conv_fwd", 0.5, 1)
    assert not outcome("slow-operator", step_of(small, HEALTHY)).findings


def test_what_is_slow_wherever_it_runs_needs_no_limit_and_promises_none(outcome):
    trace = step_of(("aten::_coalesce", {}, "coalesceValuesKernel", 2, 1), HEALTHY, HEALTHY)
    (finding,) = outcome("slow-operator", trace).findings
    assert "how much of it another way saves is not known" in finding.summary
    (ranked,) = diagnose(trace).found
    assert ranked.predicted.range_ns[1] == ranked.predicted.base_ns  # it may win nothing
    assert ranked.predicted.range_ns[0] == pytest.approx(3.4e6, rel=0.1)  # or all of it
    small = ("aten::_coalesce", {}, "coalesceValuesKernel", 0.2, 1)
    assert not outcome("slow-operator", step_of(small, HEALTHY, HEALTHY)).findings


def test_operators_that_one_cause_slows_down_are_one_finding(outcome):
    """A transform there and back over a length with a large prime factor, in one function."""
    complex_, scalar = "c10::complex<float>", "ScalarList"
    there = {
        "shapes": [[100_000, 521], [], [], []],
        "dtypes": [F, scalar, "Scalar", "Scalar"],
        "values": ["", "[1]", "0", "True"],
    }
    back = {
        "shapes": [[100_000, 261], [], [], []],
        "dtypes": [complex_, scalar, "Scalar", "Scalar"],
        "values": ["", "[1]", "2", "521"],
    }
    trace = step_of(
        ("aten::_fft_r2c", there, "regular_bluestein_fft", 6, 2),
        ("aten::_fft_c2r", back, "regular_bluestein_fft", 3, 2),
        HEALTHY,
    )
    (finding,) = outcome("slow-operator", trace).findings
    assert finding.summary.startswith("aten::_fft_r2c and aten::_fft_c2r take 9.00 ms of")
    assert "large prime factor" in finding.summary
    assert finding.cost_ns_per_step == 9_000_000


def test_the_shape_of_a_sparse_tensor_is_no_size(outcome):
    """400,000 × 400,000 numbers would take minutes to read; most of them are not there."""
    sparse = {"shapes": [[400_000, 400_000]], "dtypes": [F], "strides": [[]]}
    trace = step_of(("aten::_coalesce", sparse, "coalesceValuesKernel", 4, 1), HEALTHY)
    (finding,) = outcome("slow-operator", trace).findings
    (best,) = finding.at_best
    assert best.limit_ns.tolist() == [0.0] * 5


SPARSE = {"shapes": [[400_000, 400_000]], "dtypes": [F]}


def coalescing(around):
    """Two calls a step that sort a sparse matrix anew, one of them inside another operator."""
    p = Program()
    for _ in p.steps(6):
        for outer in around:
            with p.frame("model.py(7): propagate"), p.row(outer):
                with p.row("aten::_coalesce", **SPARSE):
                    p.kernel("coalesceValuesKernel", 2_000)
                    with p.row("aten::arange"):
                        p.kernel("elementwise_kernel_with_index", 500)
                p.kernel("csrmm_alg1_kernel", 5_000)
        p.sync()
    return p.trace()


def test_a_matrix_that_is_sorted_in_each_product_goes_with_all_that_it_starts(outcome):
    trace = coalescing(["aten::_sparse_mm", "SparseAddmmBackward0"])
    found = outcome("slow-operator", trace).findings
    finding = next(one for one in found if "_coalesce" in one.summary)
    assert "anew in each product" in finding.summary
    assert finding.confidence == "medium"
    dropped = next(c for c in finding.changes if isinstance(c, DropDeviceOps))
    assert len(dropped.device_ops) == 5 * 2 * 2  # of the complete steps: with what sorting starts


def test_a_gradient_that_is_sorted_may_be_needed(outcome):
    (finding,) = outcome(
        "slow-operator", coalescing(["Optimizer.step#SparseAdam.step"] * 2)
    ).findings
    assert "how much of it another way saves is not known" in finding.summary
    assert finding.confidence == "low"


BAGS = {
    "shapes": [[19_000_000, 256], [40_000_000], [800_001]],
    "dtypes": ["c10::BFloat16", "int", "int"],
}


@pytest.mark.parametrize("given", [BAGS, {}])
def test_what_reads_of_rows_at_random_places_could_reach_is_not_known(outcome, given):
    """20.5 GB of rows of 512 bytes: 17 ms at the rate of a gather."""
    bags = ("aten::_embedding_bag", given, "EmbeddingBag_updateOutputKernel_sum_mean", 25, 1)
    said = outcome("slow-operator", step_of(bags, HEALTHY))
    assert not said.findings
    assert said.fits
    assert "takes 25.0 ms of a step of 26.7 ms" in said.why
    assert said.why.endswith("what such reads could reach on this device is not known")


def test_bags_that_take_far_more_than_a_gather_of_their_rows(outcome):
    bags = ("aten::_embedding_bag", BAGS, "EmbeddingBag_updateOutputKernel_sum_mean", 80, 1)
    (finding,) = outcome("slow-operator", step_of(bags, HEALTHY)).findings
    assert "aten::_embedding_bag takes 80.0 ms" in finding.summary
