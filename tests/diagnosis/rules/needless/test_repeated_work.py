"""Operations that give what was there, found again in a recording by name, shapes and order."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_values import RunValues, SameCalls, VainOperations, VainWork

MS = 1_000_000
STEPS = 5  # that are judged, of 6: the first has no step before it
PLACE = ("model.py", 12, "factor")
SQUARE = ((64, 64),)
PRODUCT = ((64, 64), (64, 64))


def work(kind="step", *, which=((0, 2),), count=3, ratio=1.0, name="aten::cholesky", **more):
    operations = (VainOperations(name, SQUARE, count, which),)
    times = sum(last - first + 1 for first, last in which)
    said = {"backward": False, "of": 3, "kept_bytes": 1 << 20} | more
    return VainWork(kind, (PLACE,), operations, times=times, steps_ratio=ratio, **said)


def factoring(*notes, again=(), shapes=True, inside="factor"):
    """Steps of 12 ms on a busy device: 2 ms for each of three factors, and 6 ms of a product."""
    b = TraceBuilder()
    text = {"shapes": "[[64, 64]]"} if shapes else {}
    both = {"shapes": "[[64, 64], [64, 64]]"} if shapes else {}
    for step in range(6):
        at = step * 12 * MS
        b.step(step, at, 12 * MS)
        for turn in range(3):
            here = at + turn * MS
            b.python(f"model.py(10): {inside}", here + 10, MS - 20)
            b.op("aten::cholesky", here + 100, MS // 2, **text)
            b.op("aten::empty", here + 200, 100)
            start = at + turn * 2 * MS
            b.launch(here + 1_000, 100_000, "potrf", start, 2 * MS - 1_000)
        b.op("aten::mm", at + 4 * MS, MS, **both)
        b.launch(at + 4 * MS + 1_000, 100_000, "gemm", at + 6 * MS, 6 * MS - 1_000)
    computed = ("aten::cholesky", "aten::mm")
    values = RunValues(
        30, 1, True, (), (), 0, tuple(again), work=notes, operators=computed, views=("aten::empty",)
    )
    return replace(b.trace(), run=RunFacts(values=values))


def test_what_each_step_computes_anew_is_dropped_whole(outcome):
    (found,) = outcome("repeated-work", factoring(work())).findings
    assert found.summary.startswith(
        "3 operations a step in factor (model.py:12), mostly aten::cholesky, with the same result"
        " as in the step before: 6.00 ms of the device's time"
    )
    assert str(found.location) == "factor (model.py:12)"
    assert "1.0 MiB" in found.fix
    device, host = found.changes
    assert len(device.device_ops) == 3 * STEPS
    assert len(host.host_ops) == 3 * STEPS  # the functions, which do nothing else
    assert host.factor == 0
    assert found.at_best == ()


def test_of_what_repeats_in_a_step_the_first_stays(outcome):
    (found,) = outcome("repeated-work", factoring(work("within", which=((1, 2),)))).findings
    assert "2 operations a step" in found.summary
    assert "that was computed in the same step already: 4.00 ms" in found.summary
    device, _ = found.changes
    assert len(device.device_ops) == 2 * STEPS


def test_a_weight_by_a_state_that_moves_on_is_told_with_what_keeping_it_changes(outcome):
    (found,) = outcome("repeated-work", factoring(work("moved", kept_bytes=None))).findings
    assert "made again of the same parameters, with a state that they move on" in found.summary
    assert found.fix.startswith("Compute it once a step, if its state need not move on each time")
    assert found.confidence == "medium"


def test_what_was_new_in_some_steps_is_a_range(outcome):
    (found,) = outcome("repeated-work", factoring(work(ratio=0.75))).findings
    assert [change.factor for change in found.changes] == [0.25, 0.25]
    assert found.at_best


@pytest.mark.parametrize("count", [2, 5])
def test_a_step_with_another_number_of_them_is_left_alone(outcome, count):
    trace = factoring(work("within", which=((1, 1),), count=count))
    assert outcome("repeated-work", trace).findings == ()


def test_all_of_them_are_found_whatever_their_number(outcome):
    (found,) = outcome("repeated-work", factoring(work(which=((0, 4),), count=5))).findings
    assert len(found.changes[0].device_ops) == 3 * STEPS


def test_modules_that_are_called_again_have_a_finding_of_their_own(outcome):
    again = (SameCalls("Factor", PLACE, 9, 3),)
    trace = factoring(work(), again=again)
    assert outcome("repeated-work", trace).findings != ()
    trace = factoring(work(), again=again, inside="x")
    names = tuple("nn.Module: Factor_0" if n == "model.py(10): x" else n for n in trace.names)
    assert outcome("repeated-work", replace(trace, names=names)).findings == ()


def test_without_shapes_it_is_not_checked(outcome):
    assert outcome("repeated-work", factoring(work(), shapes=False)).answer == "not checked"


def test_where_nothing_was_watched_there_is_nothing_to_find(outcome):
    assert outcome("repeated-work", factoring()).answer == "clear"
    trace = factoring(work())
    without = replace(trace, run=RunFacts(values=replace(trace.run.values, work=None)))
    assert outcome("repeated-work", without).findings == ()


@pytest.mark.parametrize("beside", ["a kernel of its own", "Python"])
def test_a_function_that_does_something_else_too_is_left_as_it_is(outcome, beside):
    b = TraceBuilder()
    for step in range(6):
        at = step * 10 * MS
        b.step(step, at, 10 * MS)
        b.python("model.py(10): factor", at + 10, 6 * MS)
        b.op("aten::cholesky", at + 100, (1 if beside == "Python" else 5) * MS, shapes="[[64, 64]]")
        b.launch(at + 200, 1_000, "potrf", at + MS, 4 * MS)
        if beside != "Python":
            b.launch(at + 100 + 5 * MS + 10, 1_000, "own", at + 5 * MS, 4 * MS)
    note = work(which=((0, 0),), count=1)
    values = RunValues(30, 1, True, (), (), 0, work=(note,), operators=("aten::cholesky",))
    trace = replace(b.trace(), run=RunFacts(values=values))
    (found,) = outcome("repeated-work", trace).findings
    device, host = found.changes
    assert len(device.device_ops) == STEPS
    names = {trace.text(trace.host_ops, "name", row) for row in host.host_ops.tolist()}
    assert names == {"aten::cholesky"}


def test_a_part_of_an_operator_that_does_other_work_is_no_cause(outcome):
    b = TraceBuilder()
    for step in range(6):
        at = step * 10 * MS
        b.step(step, at, 10 * MS)
        b.op("aten::attention", at + 1, 3 * MS)
        b.op("aten::tril", at + 2, MS, shapes="[[64, 64]]")
        b.op("aten::mm", at + 3 + MS, MS, shapes="[[64, 64], [64, 64]]")
        b.launch(at + 100, 1_000, "tril", at + MS, 8 * MS)
    note = work(which=((0, 0),), count=1, name="aten::tril")
    values = RunValues(30, 1, True, (), (), 0, work=(note,), operators=("aten::tril", "aten::mm"))
    trace = replace(b.trace(), run=RunFacts(values=values))
    assert outcome("repeated-work", trace).findings == ()


def test_two_kinds_of_one_line_are_one_cause(outcome):
    """What is computed again in the step goes first: kept for a step, it may be kept for longer."""
    notes = work("step", which=((0, 0),)), work("within", which=((1, 2),))
    (found,) = outcome("repeated-work", factoring(*notes)).findings
    assert "2 operations a step in factor" in found.summary
    assert "and 1 operation with the same result as in the step before" in found.summary
    assert found.summary.count("device's time") == 1
    assert "6.00 ms of the device's time" in found.summary
    assert found.fix.startswith("Compute it once a step")
    elsewhere = at_place(work("within", which=((1, 2),)), ("model.py", 40, "other"))
    assert len(outcome("repeated-work", factoring(notes[0], elsewhere)).findings) == 2


def at_place(note, place):
    return replace(note, places=(place,))
