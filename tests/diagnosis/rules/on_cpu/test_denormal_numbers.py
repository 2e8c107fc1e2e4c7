"""Steps of 20 ms with two products of 6 ms, which a trial says to take 1 ms with zeros."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_values import RunValues, VainOperations, VainWork

MS, US = 1_000_000, 1_000
PLACE = ("filter.py", 64, "forward")
SHAPES = ((96, 513), (513, 80))


def tiny(tried_ns=6 * MS, left=1 / 6, name="aten::mm"):
    operations = (VainOperations(name, SHAPES, 2, ((0, 1),)),)
    return VainWork(
        "tiny",
        (PLACE,),
        operations,
        backward=False,
        times=2,
        of=None,
        kept_bytes=None,
        steps_ratio=1.0,
        read_ratio=0.65,
        left_ratio=left,
        tried_ns=tried_ns,
    )


def filtering(*notes, takes=6 * MS):
    b = TraceBuilder(devices=())
    for step in range(5):
        at = step * 20 * MS
        b.step(step, at, 20 * MS)
        for turn in range(2):
            here = at + MS + turn * 8 * MS
            b.op("aten::mm", here, takes, shapes="[[96, 513], [513, 80]]")
        b.op("aten::add", at + 17 * MS, 2 * MS, shapes="[[96, 80], [96, 80]]")
    computed = ("aten::mm", "aten::add")
    values = RunValues(30, 1, True, (), (), 0, work=notes, operators=computed)
    return replace(b.trace(), run=RunFacts(values=values))


def test_operators_that_zeros_make_quick_are_told_with_the_step_after_it(outcome):
    trace = filtering(tiny())
    (found,) = outcome("denormal-numbers", trace).findings
    assert found.summary == (
        "aten::mm in forward (filter.py:64) takes 6 × as long with its numbers as with zeros for"
        " those next to zero (denormal ones, 65 % of them), tried on its own arguments; 12.0 ms a"
        " step pass in such an operator"
    )
    assert str(found.location) == "forward (filter.py:64)"
    (first,) = (r for r in diagnose(trace).found if r.id == "denormal-numbers")
    assert first.predicted.step_ns == pytest.approx(10 * MS, rel=0.01)  # 20 less 2 × 5


def test_operators_that_were_quick_when_they_were_recorded_are_none_of_its_steps(outcome):
    """Recorded with 6 ms, and later, in the trial, 60: the state had not decayed yet."""
    judged = outcome("denormal-numbers", filtering(tiny(60 * MS, 0.1, "aten::mm")))
    assert judged.findings == ()
    assert judged.answer == "not checked"


def test_little_of_the_step_is_seen(outcome):
    trace = filtering(tiny(200 * US, 0.5), takes=200 * US)
    assert outcome("denormal-numbers", trace).answer == "smaller"


def test_where_no_operator_was_slow_by_its_numbers_all_is_clear(outcome):
    assert outcome("denormal-numbers", filtering()).answer == "clear"
