"""Steps of 40 ms in which rank 0 broadcasts a table for 6 ms and something new for 4."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_values import RunValues, VainOperations, VainWork

MS = 1_000_000
SENT = "c10d::broadcast_"
SHAPES = '[[["1000000"]]]'


def note(kind="sent", first=0, last=0):
    which = ((first, last),)
    operations = (VainOperations(SENT, (), 2, which, 2, which),)
    return VainWork(
        kind,
        (("train.py", 30, "main"),),
        operations,
        backward=False,
        times=1,
        of=None,
        kept_bytes=None,
        steps_ratio=1.0,
    )


def sending(*notes, late=0, extra=0):
    """In one step others come ``late`` to the first one; ``extra`` calls have no operator."""
    b = TraceBuilder(devices=())
    gloo = b.thread("gloo")
    for step in range(5):
        at = step * 40 * MS
        b.step(step, at, 40 * MS)
        waits = late if step != 2 else 0
        for begin, takes in ((1, 6 * MS + waits), (15, 4 * MS)):
            b.op(SENT, at + begin * MS, MS // 10)
            b.annotation("gloo:broadcast", at + begin * MS + MS // 20, takes, thread=gloo)
        for one in range(extra):
            b.annotation("gloo:broadcast", at + (36 + one) * MS, MS // 2, thread=gloo)
        b.op("aten::mm", at + 20 * MS, 15 * MS)
    values = RunValues(30, 1, True, (), (), 0, work=notes, operators=(SENT, "aten::mm"))
    return replace(b.trace(), run=RunFacts(values=values))


def test_a_table_that_is_sent_again_is_told_with_its_time(outcome):
    trace = sending(note())
    (found,) = outcome("sent-again", trace).findings
    assert found.summary.startswith("This rank sends tensors to others in main (train.py:30)")
    assert "6.00 ms a step" in found.summary
    (first,) = (r for r in diagnose(trace).found if r.id == "sent-again")
    assert first.predicted.step_ns == pytest.approx(34 * MS, rel=0.03)


def test_waiting_for_others_in_it_is_only_won_at_best(outcome):
    """They come 5 ms late in four of five steps, and would to the next collective."""
    (first,) = (r for r in diagnose(sending(note(), late=5 * MS)).found if r.id == "sent-again")
    low_ns, high_ns = first.predicted.range_ns
    assert low_ns <= 30 * MS
    assert high_ns >= 33 * MS


@pytest.mark.parametrize("kind", ["zeros", "step"])
def test_what_is_new_in_each_step_is_clear(outcome, kind):
    assert outcome("sent-again", sending(note(kind))).answer == "clear"


def test_calls_of_no_operator_are_not_judged(outcome):
    assert outcome("sent-again", sending(note(), extra=1)).answer == "not checked"
