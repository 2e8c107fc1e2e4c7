import json

import pytest

from builders import TraceBuilder
from program import Program

US = 1_000
WALK = "void (anonymous namespace)::indexing_backward_kernel<float, 4>(long const*)"
SORT = "void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<Policy>(int)"
NODES, EDGES, WIDTH = 200_000, 2_000_000, 64
ALONE_US = EDGES * WIDTH * 35 / 3.35e12 * 1e6  # 1.34 ms as atomic additions on an H100


def adding(outer, *, steps=6):
    """Each step: a sort and a serial kernel inside ``index_put_``, called by ``outer``."""
    b = TraceBuilder()
    period, runs_at = 6_000 * US, 5 * US
    shapes = json.dumps([[NODES, WIDTH], [], [EDGES, WIDTH], [], []])
    types = json.dumps(["float", "", "float", "Scalar", "Scalar"])
    for i in range(steps):
        at = i * period
        b.step(i, at, period)
        if outer:
            b.op(outer, at, 100 * US)
        b.op("aten::_index_put_impl_", at + US, 90 * US, shapes=shapes, dtypes=types)
        for n, (kernel, takes) in enumerate(((SORT, 500), (WALK, 5_000))):
            begin = at + (10 + 20 * n) * US
            runs_at = max(runs_at, begin + 6 * US)
            b.launch(begin, 5 * US, kernel, runs_at, takes * US)
            runs_at += takes * US
    return b.trace()


@pytest.mark.parametrize("outer", ["aten::index_add_", "aten::scatter_add_"])
def test_one_kernel_of_atomics_remains(outcome, outer):
    (finding,) = outcome("deterministic-algorithms", adding(outer)).findings
    assert finding.cost_ns_per_step == 5_500 * US
    scaled, dropped = finding.changes
    assert scaled.factor[0] == pytest.approx(ALONE_US / 5_000, rel=1e-3)
    assert len(scaled.device_ops) == len(dropped.device_ops)


@pytest.mark.parametrize("outer", ["IndexBackward0", "aten::masked_fill_", None])
def test_a_program_may_sort_by_itself(outcome, outer):
    assert outcome("deterministic-algorithms", adding(outer)).answer == "clear"


def test_is_told_apart_from_duplicates_in_a_backward_pass(outcome):
    assert outcome("index-backward-duplicates", adding("aten::index_add_")).answer == "clear"


def test_cannot_judge_without_operators(outcome):
    assert outcome("deterministic-algorithms", TraceBuilder().trace()).answer == "not checked"


MAPS = [16, 256, 64, 64]
LARGER = [16, 256, 128, 128]
ADDED = 16 * 256 * 128 * 128  # float32, side by side in rows of many


def resizing(*, decomposed=True):
    """Each step: a resize of four lookups, whose backward pass has four sorted additions."""
    p = Program()
    engine = p.builder.thread("autograd")
    for number in p.steps(5):
        inner = "_decomp/decompositions.py(3950): _upsample_linear_vec"
        with (
            p.frame("model.py(9): resize"),
            p.frame("torch/nn/functional.py(4614): interpolate"),
            p.frame(f"torch/{inner}" if decomposed else "torch/_ops.py(1): __call__"),
        ):
            for i in range(4):
                with p.row("aten::_unsafe_index", shapes=[MAPS], sequence=4 * number + i):
                    p.kernel("index_elementwise_kernel", 200)
            with p.row("aten::mul", shapes=[LARGER, LARGER]):
                p.kernel("mul", 300)
        p.thread = engine
        shapes, types = [MAPS, [], LARGER, [], []], ["float", "", "float", "Scalar", "Scalar"]
        for i in range(4):
            with (
                p.row("UnsafeIndexBackward0", sequence=4 * number + i),
                p.row("aten::_index_put_impl_", shapes=shapes, dtypes=types),
            ):
                p.kernel(WALK, 5_000)
        p.thread = 0
        with p.row("aten::conv2d"):
            p.kernel("conv", 1_000)
        p.sync()
    return p.trace()


def test_a_resize_that_is_taken_apart_leaves_one_lookup_and_one_addition(outcome, predicted):
    (finding,) = outcome("deterministic-algorithms", resizing()).findings
    assert finding.cost_ns_per_step == (4 * 200 + 300 + 4 * 5_000) * US
    alone_us = ADDED * 35 / 3.35e12 * 1e6
    after = predicted(resizing(), "deterministic-algorithms")
    assert after == pytest.approx((1_000 + 200 + alone_us) * US, rel=0.05)


def test_a_resize_by_its_own_kernel_says_nothing(outcome):
    assert outcome("deterministic-algorithms", resizing(decomposed=False)).answer == "clear"


def filling(outer, inner="aten::fill_"):
    """Each step: a normalisation that makes room for its result, filled by ``outer`` or not."""
    p = Program()
    for _ in p.steps(6):
        with p.row("aten::native_layer_norm", shapes=[MAPS], dtypes=["float"]):
            with p.row(outer, shapes=[[]], dtypes=[""]), p.row(inner, shapes=[MAPS]):
                p.kernel("vectorized_elementwise_kernel<FillFunctor>", 40)
            p.kernel("layer_norm", 100)
    return p.trace()


@pytest.mark.parametrize("outer", ["aten::empty", "aten::empty_strided", "aten::resize_"])
def test_fills_of_fresh_buffers_go_alone(outcome, outer):
    (finding,) = outcome("deterministic-algorithms", filling(outer)).findings
    assert finding.cost_ns_per_step == 40 * US
    assert len(finding.changes[0].device_ops) == 5  # judged steps
    assert "fill_uninitialized_memory" in finding.hint


@pytest.mark.parametrize("outer", ["aten::zero_", "aten::full", "aten::zeros", "aten::ones_like"])
def test_fills_that_a_program_asked_for_are_none(outcome, outer):
    assert outcome("deterministic-algorithms", filling(outer)).answer == "clear"


def test_other_work_of_what_makes_room_is_no_fill(outcome):
    trace = filling("aten::resize_", inner="aten::copy_")
    assert outcome("deterministic-algorithms", trace).answer == "clear"
