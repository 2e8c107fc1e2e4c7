"""Gradients that are dropped before anything reads them, found again in a recording."""

from dataclasses import replace

from builders import TraceBuilder
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_values import RunValues, VainOperations, VainWork

MS = 1_000_000
PLACE = ("train.py", 12, "critic_step")
GIVEN = ((8, 16), (16, 64))
FILTER = ((8, 4, 9, 9), (8, 2, 9, 9), (4, 2, 3, 3))


def thrown(*, whole=True, half=False, kind="gradients", seen=True):
    """Steps of 10 ms on a busy device: 2 ms of products and 4 of a convolution's backward pass."""
    b = TraceBuilder()
    work = (("aten::mm", GIVEN, 2 * MS), ("aten::convolution_backward", FILTER, 4 * MS))
    for step in range(6):
        at = step * 10 * MS
        b.step(step, at, 10 * MS)
        begins = at
        for name, shapes, takes in (*work, ("aten::mean", ((8, 8),), 4 * MS)):
            text = str([list(one) for one in shapes])
            issued = at + (begins - at) // 10
            b.op(name, issued, MS // 10, shapes=text)
            b.launch(issued + 1_000, 10_000, name[6:], begins, takes - 1_000)
            begins += takes
    notes = []
    for wanted, (name, shapes, _), left in zip((whole, half), work, (0.0, 0.5), strict=True):
        operations = (VainOperations(name, shapes, 1, ((0, 0),)),)
        note = VainWork(kind, (PLACE,), operations, True, 1, None, None, 1.0, 0.0, left)
        notes += [replace(note, gradients=3)] if wanted else []
    computed = ("aten::convolution_backward", "aten::mean", "aten::mm")
    values = RunValues(30, 1, True, (), (), 0, work=tuple(notes), operators=computed)
    unseen = RunValues(30, 1, True, (), (), 0, work_not_seen="subclasses of tensors")
    return replace(b.trace(), run=RunFacts(values=values if seen else unseen))


def test_the_step_without_them_and_the_line_that_asks_for_them(outcome):
    (found,) = outcome("gradients-thrown-away", thrown()).findings
    assert found.summary.startswith(
        "3 gradients a step of what critic_step (train.py:12) computes are dropped before anything"
        " reads them, mostly by aten::mm: 2.00 ms of the device's time"
    )
    _, device, host = found.changes  # nothing else multiplies: no product is left for the limit
    assert (len(device.device_ops), device.factor) == (5, 0)  # judged steps
    assert host.factor == 0


def test_of_a_convolution_half_is_left(outcome):
    (found,) = outcome("gradients-thrown-away", thrown(half=True)).findings
    assert "mostly by aten::convolution_backward: 4.00 ms of the device's time" in found.summary
    assert (len(found.changes[-1].device_ops), found.changes[-1].factor) == (5, 0.5)


def test_what_nobody_reads_otherwise_is_another_cause(outcome):
    assert outcome("gradients-thrown-away", thrown(kind="unused")).findings == ()


def test_what_was_not_watched_is_not_checked(outcome):
    answer = outcome("gradients-thrown-away", thrown(seen=False))
    assert (answer.answer, answer.why) == (
        "not checked",
        "the run was not watched: subclasses of tensors",
    )
