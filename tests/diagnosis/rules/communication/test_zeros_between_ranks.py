"""Steps of 40 ms: two exchanges of 5 ms that the thread waits for, and a product of 10 ms."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_values import RunValues, VainOperations, VainWork

MS = 1_000_000
SENT, PRODUCT = "c10d::alltoall_base_", "aten::bmm"


def zeros(name, ratio, count, place, last=None):
    which = ((0, count - 1 if last is None else last),)
    operations = (VainOperations(name, ((512, 64),), count, which, count, which),)
    return VainWork(
        "zeros",
        (place,),
        operations,
        backward=False,
        times=count,
        of=None,
        kept_bytes=None,
        steps_ratio=1.0,
        read_ratio=ratio,
        left_ratio=1 - ratio,
    )


SENDS = zeros(SENT, 0.6, 2, ("moe.py", 20, "exchange"))
WORK = zeros(PRODUCT, 0.5, 1, ("moe.py", 37, "forward"))


def exchanging(*notes, calls=2):
    b = TraceBuilder(devices=())
    gloo = b.thread("gloo")
    for step in range(5):
        at = step * 40 * MS
        b.step(step, at, 40 * MS)
        for turn in range(calls):
            here = at + MS + turn * 7 * MS
            b.op(SENT, here, MS // 10)
            b.annotation("gloo:all_to_all", here + MS // 20, 5 * MS, thread=gloo)
        b.op(PRODUCT, at + 20 * MS, 10 * MS)
        b.op("aten::add", at + 31 * MS, 8 * MS)
    values = RunValues(30, 1, True, (), (), 0, work=notes, operators=(SENT, PRODUCT, "aten::add"))
    return replace(b.trace(), run=RunFacts(values=values))


def test_zeros_that_are_sent_are_told_with_the_work_on_them(outcome):
    trace = exchanging(SENDS, WORK)
    (found,) = outcome("zeros-between-ranks", trace).findings
    assert found.summary == (
        "60 % of the rows that ranks send each other in exchange (moe.py:20) hold nothing but"
        " zeros: 6.00 ms a step to send these, and 5.00 ms of work on as many rows"
    )
    (first,) = (r for r in diagnose(trace).found if r.id == "zeros-between-ranks")
    assert first.predicted.step_ns == pytest.approx(29 * MS, rel=0.03)  # 40 less 6, and 5


def test_work_on_zeros_that_nobody_sends_is_another_cause(outcome):
    assert outcome("zeros-between-ranks", exchanging(WORK)).answer == "clear"


def test_steps_that_send_more_often_than_the_one_that_was_looked_at_are_not_judged(outcome):
    first_of_two = zeros(SENT, 0.6, 2, ("moe.py", 20, "exchange"), last=0)
    judged = outcome("zeros-between-ranks", exchanging(first_of_two, WORK, calls=3))
    assert judged.answer == "not checked"


def test_messages_without_rows_of_zeros_are_clear(outcome):
    assert outcome("zeros-between-ranks", exchanging()).answer == "clear"
