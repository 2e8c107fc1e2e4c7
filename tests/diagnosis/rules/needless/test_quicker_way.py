"""Ways that a run tried and that were quicker, found again in a recording."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_values import RunValues, VainOperations, VainWork

MS = 1_000_000
SVD = "aten::_linalg_svd"
SHAPES = ((64, 64),)
PLACE = ("shampoo.py", 30, "root")


def decomposing(*, device=True, **said):
    """Steps of 10 ms, 6 of which are two decompositions."""
    b = TraceBuilder()
    for step in range(6):
        at = step * 10 * MS
        b.step(step, at, 10 * MS)
        for number in range(2):
            start = at + number * 3 * MS
            b.op(SVD, start, 3 * MS, shapes="[[64, 64]]")
            if device:
                b.launch(start + 1_000, 100_000, "gesvdj", start + 200_000, 3 * MS - 200_000)
        b.op("aten::mm", at + 9 * MS, MS // 2, shapes="[[64, 64], [64, 64]]")
    note = {"kind": "way", "way": "svd-of-symmetric", "left_ratio": 0.25, "tried_ns": 4 * MS} | said
    operations = (VainOperations(SVD, SHAPES, 2, ((0, 1),)),)
    work = VainWork(
        places=(PLACE,),
        operations=operations,
        backward=False,
        times=2,
        of=None,
        kept_bytes=None,
        steps_ratio=1.0,
        **note,
    )
    values = RunValues(30, 1, True, (), (), 0, work=(work,), operators=(SVD, "aten::mm"))
    return replace(b.trace(), run=RunFacts(values=values))


def test_what_was_tried_is_said_and_counted(outcome):
    (found,) = outcome("quicker-way", decomposing()).findings
    assert found.summary == (
        "aten::_linalg_svd in root (shampoo.py:30) decomposes matrices that are symmetric as any"
        " others: 5.60 ms of the device's time a step. On its own arguments another way gave the"
        " same in 1.00 ms where it took 4.00 ms, tried in this run"
    )
    device, host = found.changes
    assert (device.factor, host.factor) == (0.25, 0.25)
    assert "eigh" in found.hint
    assert found.confidence == "high"


def test_on_a_cpu(outcome):
    (found,) = outcome("quicker-way", decomposing(device=False)).findings
    (host,) = found.changes
    assert len(host.host_ops) == 10  # of the judged steps: the first has none before it
    assert found.cost_ns_per_step == 6 * MS


def test_a_condition_makes_it_less_sure(outcome):
    (found,) = outcome("quicker-way", decomposing(way="product-with-zeros")).findings
    assert found.fix.endswith("where it is made sparse once, or comes as indices")
    assert found.confidence == "medium"


@pytest.mark.parametrize(
    "said", [{"kind": "unused"}, {"way": "a way of a later version"}, {"left_ratio": 1.0}]
)
def test_nothing_that_was_quicker(outcome, said):
    assert outcome("quicker-way", decomposing(**said)).findings == ()
