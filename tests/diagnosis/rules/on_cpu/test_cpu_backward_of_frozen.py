"""A backward pass of 60 of 100 ms: the head's layer, frozen layers, and a table below them."""

import pytest

from builders import TraceBuilder, with_what_goes
from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.diagnosis.rules.on_cpu.cpu_backward_of_frozen import check

MS, US = 1_000_000, 1_000
HEAD, TABLE = "[[8, 256]]", "[[6000, 256]]"
NODE = "autograd::engine::evaluate_function: "


class Backward:
    """Nodes one after another, from a time on."""

    def __init__(self, builder, at):
        self.builder, self.at = builder, at

    def layer(self, takes, *, products=1):
        name = "AddmmBackward0"
        self.builder.op(NODE + name, self.at, takes)
        self.builder.op(name, self.at + US, takes - 2 * US)
        for n in range(products):
            each = (takes - 4 * US) // products
            self.builder.op("aten::mm", self.at + 2 * US + n * each, each)
        self.at += takes

    def stores(self, shape):
        name = "torch::autograd::AccumulateGrad"
        self.builder.op(NODE + name, self.at, 20 * US)
        self.builder.op(name, self.at + US, 10 * US, shapes=shape)
        self.at += 20 * US


def training(*, layers=6, products=1, behind=TABLE, stepped=(HEAD,), adapters=False):
    builder = TraceBuilder(devices=())
    for step in range(4):
        at = step * 100 * MS
        builder.step(step, at, 100 * MS)
        builder.op("aten::addmm", at + US, 30 * MS, shapes="[[8], [24, 256], [256, 8]]")
        run = Backward(builder, at + 31 * MS)
        run.layer(2 * MS, products=2)
        run.stores(HEAD)
        for _ in range(layers):
            run.layer(8 * MS, products=products)
            if adapters:
                run.stores(HEAD)
        run.stores(behind)
        builder.annotation("Optimizer.step#AdamW.step", at + 95 * MS, 2 * MS)
        for n, shape in enumerate(stepped):
            inside = at + 95 * MS + US + n * 100 * US
            builder.op("aten::addcdiv_", inside, 90 * US, shapes=shape)
    return builder.trace()


def test_what_lies_behind_frozen_layers_is_for_nobody():
    trace = training()
    (found,) = check(trace)
    assert found.summary.startswith(
        "The backward pass runs through 6 layers that get no gradient of their own for the sake of"
        " 1 gradient of 6000 × 256, which no optimizer steps: 48.0 ms"
    )
    (first,) = (r for r in diagnose(trace).found if r.id == "cpu-backward-of-frozen")
    said_ns = with_what_goes(100 * MS, 52 * MS)
    assert first.predicted.step_ns == pytest.approx(said_ns, rel=0.01)


@pytest.mark.parametrize("stepped", [(HEAD, TABLE), ()], ids=["stepped", "not recorded"])
def test_what_may_be_meant_to_be_trained_is_undecided(stepped):
    with pytest.raises(NotChecked, match="whether these are meant to be trained does not show"):
        list(check(training(stepped=stepped)))


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(training(products=2), id="a cell, whose nodes make both products"),
        pytest.param(training(layers=3), id="attention alone"),
        pytest.param(training(adapters=True), id="an adapter in each layer"),
    ],
)
def test_it_stays_quiet(trace):
    assert list(check(trace)) == []


def test_a_shape_that_was_stored_before_as_often_may_be_that_one():
    """The optimizer steps one of 8 × 256, and one was stored by the head: the other is unused, yet
    nothing says so of a shape of its own."""
    with pytest.raises(NotChecked):
        list(check(training(behind=HEAD)))
