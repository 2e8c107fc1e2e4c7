"""Loops of a step, told apart by what varies in them; microseconds."""

import pytest

from pinchpoint.analysis.work.loops import Varies, loops
from pinchpoint.trace import HostKind
from program import Program

TIMES = 6


def loop(iteration, before=1):
    p = Program()
    for _ in p.steps(4):
        for _ in range(before):
            with p.row("aten::embedding", shapes=[[100, 8]]):
                p.kernel("rows", 10)
        for i in range(TIMES):
            iteration(p, i)
        with p.row("aten::sum", shapes=[[8]]):
            p.kernel("sum", 10)
        p.sync()
    (found,) = loops(p.trace())
    return found


def cell(p, shape, us=20):
    for name in ("aten::mm", "aten::tanh"):
        with p.row(name, shapes=[shape]):
            p.kernel(name, us)


def layer(p, i):
    with p.row(f"nn.Module: Block_{i}", kind=HostKind.MODULE), p.frame("model.py(9): forward"):
        cell(p, [64, 64])


def parameter(p, i):
    with p.row("Optimizer.step#AdamW.step", kind=HostKind.ANNOTATION):
        cell(p, [64 + 3 * i % 5, 64])


@pytest.mark.parametrize(
    ("iteration", "varies"),
    [
        pytest.param(lambda p, i: cell(p, [64, 64]), Varies.NOTHING, id="time steps"),
        pytest.param(layer, Varies.MODULE, id="layers"),
        pytest.param(lambda p, i: cell(p, [64 + i, 64]), Varies.LENGTH, id="tokens without cache"),
        pytest.param(lambda p, i: cell(p, [64 + 7 * i % 5, 64]), Varies.SIZES, id="requests"),
        pytest.param(parameter, Varies.PARAMETER, id="the optimizer"),
    ],
)
def test_what_varies(iteration, varies):
    found = loop(iteration)
    assert (found.iterations, found.operations, found.varies) == (TIMES, 2, varies)
    assert found.device_ns == TIMES * 2 * 20_000
    assert not found.waits


def test_requests_that_are_waited_for_one_by_one():
    def request(p, i):
        cell(p, [64, 64], us=200)
        p.sync()

    found = loop(request)
    assert found.waits
    assert found.busy_ratio == pytest.approx(1.0, abs=0.05)


def test_three_times_is_no_loop():
    p = Program()
    for _ in p.steps(4):
        for _ in range(3):
            cell(p, [64, 64])
    assert loops(p.trace()) == ()
