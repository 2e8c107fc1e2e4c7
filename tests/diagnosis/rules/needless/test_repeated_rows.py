"""Work on rows that were repeated, found again in a recording."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_values import RunValues, VainOperations, VainWork

MS = 1_000_000
MM = "aten::mm"
SHAPES = ((4096, 64), (64, 64))


def encoding(kind="rows", *, of=4096, left=0.125):
    """Steps of 10 ms with a product of 6 ms."""
    b = TraceBuilder()
    for step in range(6):
        at = step * 10 * MS
        b.step(step, at, 10 * MS)
        b.op(MM, at, MS, shapes="[[4096, 64], [64, 64]]")
        b.launch(at + 1_000, 100_000, "gemm", at + 200_000, 6 * MS)
        b.op("aten::sum", at + 9 * MS, MS // 2, shapes="[[4096, 64]]")
    operations = (VainOperations(MM, SHAPES, 1, ((0, 0),)),)
    place = (("rank.py", 30, "score"),)
    work = VainWork(kind, place, operations, False, 1, of, None, 1.0, left, left)
    values = RunValues(30, 1, True, (), (), 0, work=(work,), operators=(MM, "aten::sum"))
    return replace(b.trace(), run=RunFacts(values=values))


def test_what_is_left_is_that_of_different_rows(outcome):
    (found,) = outcome("repeated-rows", encoding()).findings
    assert found.summary == (
        "Of 4,096 rows that were repeated in score (rank.py:30) 512 are different: 1 operation a"
        " step compute on all of them, mostly aten::mm, 6.00 ms of the device's time"
    )
    (device,) = found.changes
    assert device.factor == 0.125
    assert found.cost_ns_per_step == 5.25 * MS


@pytest.mark.parametrize("note", [{"kind": "within"}, {"of": None}, {"left": 1.0}])
def test_nothing_that_was_seen_to_be_repeated(outcome, note):
    assert outcome("repeated-rows", encoding(**note)).findings == ()
