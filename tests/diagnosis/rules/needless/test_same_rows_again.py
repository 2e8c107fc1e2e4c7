"""Work on rows that are the same, found again in a recording."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_values import RunValues, VainOperations, VainWork

MS = 1_000_000
PRODUCT, SHAPES = "aten::addmm", ((256,), (512, 256), (256, 256))
PLACE = (("rank.py", 30, "score"),)


def encoding(kind="alike", *, left=1 / 16, took=6 * MS):
    """Steps of 10 ms of a program on a CPU: a product of rows that repeat, and another one."""
    b = TraceBuilder()
    b.devices = []
    for step in range(6):
        at = step * 10 * MS
        b.step(step, at, 10 * MS)
        b.op(PRODUCT, at, took, shapes=str([list(shape) for shape in SHAPES]))
        b.op("aten::mm", at + 7 * MS, 2 * MS, shapes="[[64, 64], [64, 64]]")
    operations = (VainOperations(PRODUCT, SHAPES, 1, ((0, 0),)),)
    note = VainWork(kind, PLACE, operations, False, 1, None, None, 1.0, left, left)
    values = RunValues(30, 1, True, (), (), 0, work=(note,), operators=(PRODUCT, "aten::mm"))
    return replace(b.trace(), run=RunFacts(values=values))


def test_distinct_rows_stay(outcome):
    (found,) = outcome("same-rows-again", encoding()).findings
    assert found.summary == (
        "Rows of a batch are the same in score (rank.py:30): 6.2 % of the rows of 1 operation a"
        " step are distinct, mostly of aten::addmm: 6.00 ms of the host's as recorded"
    )
    (host,) = found.changes
    assert (len(host.host_ops), host.factor) == (5, pytest.approx(1 / 16))
    assert found.cost_ns_per_step == pytest.approx(6 * MS * 15 / 16)
    assert "one of 16" in found.fix


def test_calls_are_made_all_the_same(outcome):
    """Of a call of 0.1 ms a fifth is that of calling it, however few its rows."""
    (found,) = outcome("same-rows-again", encoding(took=MS // 10)).findings
    assert found.changes[0].factor == pytest.approx(0.2)


@pytest.mark.parametrize("kind", ["part", "within", "unused"])
def test_other_work_in_vain_is_another_cause(outcome, kind):
    assert outcome("same-rows-again", encoding(kind)).findings == ()
