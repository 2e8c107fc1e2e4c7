import json

import pytest

from builders import TraceBuilder
from pinchpoint.trace import HostKind

US = 1_000
MULTIPROCESSORS = 132


def training(
    *,
    items=2,
    blocks=33,
    kernel_us=2,
    backward=True,
    kernels=40,
    steps=5,
    gradients=None,
    loop=False,
):
    """Steps of short kernels that the host launches every 50 µs."""
    b = TraceBuilder()
    period = (kernels + 1) * 50 * US
    engine = b.thread("autograd")
    grid = json.dumps([blocks, 1, 1])
    for i in range(steps):
        b.step(i, i * period, period)
        for n in range(kernels):
            at = i * period + n * 50 * US
            shapes = json.dumps([[items, 64, 32, 32], [64, 64, 3, 3]])
            if loop:
                b.op("nn.Module: Net_0", at, 46 * US, kind=HostKind.MODULE)
            b.op("aten::conv2d", at, 45 * US, shapes=shapes)
            b.launch(at + US, 5 * US, "fprop", at + 8 * US, kernel_us * US, grid=grid)
        if backward:
            name = "autograd::engine::evaluate_function: ConvolutionBackward0"
            b.op(name, i * period, 10 * US, thread=engine)
        if gradients:
            at = i * period + 20 * US
            b.op("torch::autograd::AccumulateGrad", at, 10 * US, thread=engine)
            b.op(gradients, at + US, 5 * US, thread=engine)
    return b.trace()


def test_says_what_the_same_items_take_in_a_full_batch(outcome):
    (finding,) = outcome("small-batch", training()).findings
    assert finding.evidence[0].value == 2
    assert finding.evidence[1].value == pytest.approx(33 / MULTIPROCESSORS)
    least, most = finding.saving_ns_per_step
    full = 40 * 2 * US * 33 / MULTIPROCESSORS
    assert (most - least) == pytest.approx(full, abs=2)
    assert finding.consequence


def test_items_one_after_the_other_are_no_small_batch_but_a_loop(outcome):
    assert outcome("small-batch", training(loop=True)).answer == "clear"


def test_takes_the_place_of_launch_bound(ranked):
    assert ranked(training()) == ["small-batch"]


def test_a_batch_of_usual_size_is_launch_bound(ranked):
    assert ranked(training(items=32)) == ["launch-bound"]


def test_inference_of_one_item_is_another_cause(outcome):
    assert outcome("small-batch", training(backward=False)).answer == "clear"


def test_kernels_that_fill_the_device_have_work(outcome):
    assert outcome("small-batch", training(blocks=500)).answer == "clear"


def test_micro_steps_pay_all_launches_however_full_the_device_is(outcome, ranked):
    trace = training(blocks=84, gradients="aten::add_")  # 64 % of the multiprocessors
    (finding,) = outcome("small-batch", trace).findings
    assert "accumulated over micro-steps of 2 items and 40 launches" in finding.summary
    assert ranked(trace) == ["small-batch"]


def test_gradients_of_one_step_are_not_accumulated(outcome):
    assert outcome("small-batch", training(blocks=84, gradients="aten::detach")).answer == "clear"


def test_a_busy_device_has_work(outcome):
    assert outcome("small-batch", training(kernel_us=14, kernels=60)).answer == "found"
    assert outcome("small-batch", training(kernel_us=40)).answer == "clear"


def test_cannot_judge_without_a_device(outcome):
    assert outcome("small-batch", TraceBuilder().trace()).answer == "not checked"


@pytest.mark.corpus
def test_labelled(labelled):
    slow = labelled("c42_small_batch.slow")
    assert next(iter(slow)) == "small-batch"


@pytest.mark.corpus
@pytest.mark.parametrize(
    "name",
    ["c27_launch_bound.slow", "c62_no_kv_cache.slow", "c63_decode_host_overhead.slow",
     "c64_sampling_on_cpu.slow", "h05_healthy_graph_decode.healthy"],
)  # fmt: skip
def test_other_short_kernels(labelled, name):
    assert "small-batch" not in labelled(name)
