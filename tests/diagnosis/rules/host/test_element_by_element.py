"""Tensors that are made from lists."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import RunFacts, RunSamples
from pinchpoint.trace.run_samples import SampledThread, Spent

MS = 1_000_000
COLLATE = "data.py(39): __call__"


def collating(
    takes_ms, shape="[[24,256,64]]", name="<built-in method tensor of type object at 0x7>"
):
    """Steps of 100 ms, in each of which one tensor is made."""
    b = TraceBuilder()
    for number in range(6):
        at = number * 100 * MS
        b.step(number, at, 100 * MS)
        b.python(COLLATE, at + MS, 62 * MS)
        b.python(name, at + 2 * MS, takes_ms * MS)
        b.op("aten::to", at + 3 * MS, 1000, shapes=shape)
        b.op("aten::mm", at + 70 * MS, 20 * MS)
    return b.trace(api_calls=None, device_ops=None)


def test_a_tensor_that_takes_long_for_each_of_its_elements_was_made_from_a_list(outcome):
    stack = ("data.py(41): __call__", "train.py(9): main")
    spent = (Spent(stack, "torch.tensor()", 50, 5_000_000, 5_000_000, 5_000_000),)
    looked = RunSamples(
        every_s=0.1, seconds=5.0, looks=50, late_median_ns=0, cost_ns=0, frames=(), stacks=(),
        threads=(SampledThread("MainThread", True, 50, 0, (), spent),),
    )  # fmt: skip
    trace = replace(collating(60), run=RunFacts(samples=looked))
    (found,) = outcome("element-by-element", trace).findings
    assert "from a list in __call__ (data.py:41), element by element: 153 ns" in found.summary
    assert "of 393,216 elements" in found.summary
    assert found.cost_ns_per_step == 60 * MS - 1000
    (change,) = found.changes
    assert change.factor == pytest.approx(2 * 393_216 / (60 * MS - 1000))


@pytest.mark.parametrize(
    "trace",
    [
        collating(2),
        collating(60, shape="[[]]"),
        collating(60, name="<built-in method mm of type object at 0x7>"),
    ],
    ids=["one array is copied", "a single number", "another call"],
)
def test_what_is_made_in_one_go_is_no_cause(outcome, trace):
    assert outcome("element-by-element", trace).findings == ()
