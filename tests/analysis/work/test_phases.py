"""Forward, backward and optimizer without stacks; equal calls of unequal times; microseconds."""

import pytest

from pinchpoint.analysis.time.queue_over_time import PARTS, queue_over_time
from pinchpoint.analysis.work.module_work import module_work
from pinchpoint.analysis.work.phases import phases
from pinchpoint.analysis.work.variation import variations
from pinchpoint.trace import HostKind
from program import Program

SHAPES = {"shapes": [[64, 32], [16, 32], [16]], "dtypes": ["float"] * 3}


def training(slow_us=100, strides=None):
    p = Program()
    for step in p.steps(6):
        module = p.row("nn.Module: Linear_0", kind=HostKind.MODULE)
        with module, p.row("aten::linear", sequence=step, **SHAPES):
            p.kernel("gemm", 100)
        with p.row("autograd::engine::evaluate_function: LinearBackward0", sequence=step):
            p.kernel("gemm_backward", 200)
        optimizer = p.row("Optimizer.step#AdamW.step", kind=HostKind.ANNOTATION)
        with optimizer, p.row("aten::_fused_adamw_"):
            p.kernel("adam", 50)
        copy = {"shapes": [[512, 512], [512, 512]], "dtypes": ["float", "float"]}
        with p.row("aten::copy_", strides=[[512, 1], [512, 1]], **copy):
            p.kernel("copy", 100)
        with p.row("aten::copy_", strides=strides or [[512, 1], [512, 1]], **copy):
            p.kernel("copy", slow_us)
    return p.trace()


def test_the_phases_of_a_step():
    found = {one.label: (one.device_ns, one.forward_ratio) for one in phases(training())}
    assert found == {
        "forward": (300_000, 1.0),
        "backward": (200_000, pytest.approx(2 / 3)),
        "optimizer": (50_000, pytest.approx(1 / 6)),
    }


def test_without_a_backward_pass_there_are_none():
    p = Program()
    for _ in p.steps(3):
        with p.row("aten::mm"):
            p.kernel("gemm", 10)
    assert phases(p.trace()) == ()


def test_equal_calls_at_another_layout():
    (one,) = variations(training(slow_us=400, strides=[[1, 512], [512, 1]]))
    assert (one.name, one.shapes, one.why) == ("aten::copy_", "512x512 512x512", "another layout")
    assert (one.usual_ns, one.slow_ns, one.excess_ns) == (100_000, 400_000, 300_000)


def test_equal_calls_at_another_rate():
    (one,) = variations(training(slow_us=400))
    assert one.why == "another rate"
    assert variations(training()) == ()


def test_parameters_and_flops_of_a_module():
    found = module_work(training())["Linear_0"]
    assert found.parameters == 16 * 32 + 16
    assert found.flops == 6 * 2 * 64 * 32 * 16


def test_the_queue_grows_while_the_host_runs_ahead():
    p = Program()
    for _ in p.steps(6):
        for _ in range(20):
            p.kernel("work", 100)
    found = queue_over_time(p.trace())
    known = [depth for depth in found.depth if depth is not None]
    assert len(found.depth) == PARTS
    assert known[0] < known[-1]
    assert found.empty_ratio == pytest.approx(1 / 120)
