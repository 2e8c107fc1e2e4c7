"""Operations that several ranks compute alike, found again in a recording of one of them."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_values import RunValues, VainOperations, VainWork

MS = 1_000_000
PLACE = ("train.py", 12, "loss_on_logits")
NAMES = ("aten::mm", "aten::_log_softmax")


def computing(kind="ranks", *, ranks=2, shared=0.5, on_device=True):
    """Steps of 10 ms: 4 of them for a softmax inside of a loss."""
    b = TraceBuilder()
    for step in range(6):
        at = step * 10 * MS
        b.step(step, at, 10 * MS)
        for name, start, takes in ((NAMES[0], 0, 6 * MS), (NAMES[1], 6 * MS, 4 * MS)):
            begins = at + (start // 6 if on_device else start)
            b.op(name, begins, MS if on_device else takes - 2_000, shapes="[[64, 16]]")
            if on_device:
                b.launch(begins + 1_000, 100_000, name[6:], at + start, takes - 1_000)
    operations = (VainOperations(NAMES[1], ((64, 16),), 1, ((0, 0),)),)
    note = VainWork(kind, (PLACE,), operations, False, 1, ranks, None, 1.0, shared_ratio=shared)
    values = RunValues(30, 1, True, (), (), 0, work=(note,), operators=NAMES)
    return replace(b.trace(), run=RunFacts(values=values))


@pytest.mark.parametrize(("ranks", "who"), [(2, "Both ranks"), (4, "4 ranks")])
def test_shared_out_each_rank_computes_its_part(outcome, ranks, who):
    (found,) = outcome("same-work-on-ranks", computing(ranks=ranks)).findings
    assert found.summary.startswith(
        f"{who} compute the same in loss_on_logits (train.py:12): the bits that 1 operation a step"
        " give, mostly aten::_log_softmax, are equal; 4.00 ms of the device's time"
    )
    assert [change.factor for change in found.changes] == [1 / ranks]
    assert "its part" in found.fix


def test_where_nearly_all_is_the_same_they_have_the_same_batch(outcome):
    (found,) = outcome("same-work-on-ranks", computing(shared=1.0)).findings
    assert "they are given the same batch" in found.summary
    assert "DistributedSampler" in found.hint


def test_on_a_cpu_its_operators_take_less(outcome):
    (found,) = outcome("same-work-on-ranks", computing(on_device=False)).findings
    assert [change.factor for change in found.changes] == [0.5]


@pytest.mark.parametrize("kind", ["step", "within", "unused", "order"])
def test_other_work_in_vain_is_another_cause(outcome, kind):
    assert outcome("same-work-on-ranks", computing(kind)).findings == ()
