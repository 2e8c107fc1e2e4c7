"""Operations whose results nobody reads, found again in a recording."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import MemoryKind, RunFacts
from pinchpoint.trace.run_values import RunValues, VainOperations, VainWork

MS = 1_000_000
PLACE = ("model.py", 30, "forward")


SHAPES = ((8, 16, 64),)


def dropping(
    kind="unused",
    *,
    backward=False,
    shapes=True,
    read=0.0,
    noted=SHAPES,
    of_name=0,
    other_thread="",
):
    """Steps of 10 ms on a busy device: 4 of them for what is dropped. ``other_thread``: what is
    seen of a thread beside, which launches a kernel, sends, or does nothing on the device."""
    b = TraceBuilder()
    beside = b.thread("python")
    for step in range(6):
        at = step * 10 * MS
        b.step(step, at, 10 * MS)
        for name, start, takes in (("aten::mm", 0, 6 * MS), ("aten::mean", 6 * MS, 4 * MS)):
            text = {"shapes": "[[8, 16, 64]]"} if shapes else {}
            b.op(name, at + start // 6, MS, **text)
            b.launch(at + start // 6 + 1_000, 100_000, name[6:], at + start, takes - 1_000)
        if other_thread and not step:  # a kernel whose launch was before the recording
            b.add("device_ops", name="k", start_ns=1, duration_ns=9, device=0, stream=7, kind=1)
        if other_thread == "launches":
            b.launch(at + MS, 1_000, "sum", at + 9 * MS, 1_000, thread=beside, stream=9)
        if other_thread == "sends":
            ends = {"source": MemoryKind.PINNED, "target": MemoryKind.DEVICE}
            there = {"size": 64, "thread": beside, "stream": 9}
            b.copy(at + MS, 1_000, "HtoD", at + 9 * MS, 1_000, **ends, **there)
    by_name = (of_name, ((of_name - 1, of_name - 1),)) if of_name else (0, ())
    operations = (VainOperations("aten::mean", noted, 1, ((0, 0),), *by_name),)
    note = VainWork(
        kind,
        (PLACE,),
        operations,
        backward,
        1,
        None,
        None,
        1.0,
        read,
        read,
        beside_threads=bool(other_thread),
    )
    computed = ("aten::mean", "aten::mm")
    values = RunValues(30, 1, True, (), (), 0, work=(note,), operators=computed)
    return replace(b.trace(), run=RunFacts(values=values))


def test_what_nobody_reads_is_left_out(outcome):
    (found,) = outcome("unused-work", dropping()).findings
    assert found.summary.startswith(
        "Nobody reads the results of 1 operation a step in forward (model.py:30), mostly"
        " aten::mean: 4.00 ms of the device's time"
    )
    device, host = found.changes
    assert len(device.device_ops) == 5  # judged steps: the first has none before it
    assert host.factor == 0
    assert found.hint is None


def test_gradients_that_nobody_reads_are_not_computed(outcome):
    (found,) = outcome("unused-work", dropping(backward=True)).findings
    assert "needs_input_grad" in found.hint


def test_of_what_a_part_is_read_of_that_part_stays(outcome):
    (found,) = outcome("unused-work", dropping("part", read=0.25)).findings
    assert found.summary.startswith(
        "Of what aten::mean gives in forward (model.py:30), 25 % is read: 4.00 ms of the device's"
    )
    assert [change.factor for change in found.changes] == [0.25]  # as many launches
    assert found.at_best == ()


@pytest.mark.parametrize("does", ["nothing", "sends"])
def test_threads_beside_that_read_nothing_of_the_device(outcome, does):
    assert len(outcome("unused-work", dropping(other_thread=does)).findings) == 1


def test_a_thread_beside_that_launches_may_have_read_it(outcome):
    told = outcome("unused-work", dropping(other_thread="launches"))
    assert (told.findings, told.answer) == ((), "not checked")
    assert "threads" in told.why


@pytest.mark.parametrize("kind", ["step", "within"])
def test_what_is_repeated_is_another_cause(outcome, kind):
    assert outcome("unused-work", dropping(kind)).findings == ()


def test_without_shapes_it_is_not_checked(outcome):
    assert outcome("unused-work", dropping(shapes=False)).answer == "not checked"


@pytest.mark.parametrize("noted", [SHAPES, None], ids=["not recorded", "other in each step"])
def test_without_shapes_its_place_among_its_name_tells(outcome, noted):
    (found,) = outcome("unused-work", dropping(shapes=False, noted=noted, of_name=1)).findings
    assert len(found.changes[0].device_ops) == 5


def test_a_step_that_has_fewer_of_its_name(outcome):
    assert outcome("unused-work", dropping(shapes=False, noted=None, of_name=2)).findings == ()


def test_what_was_not_watched_is_not_checked(outcome):
    why = "the program compiles, and would compile again"
    trace = replace(
        dropping(),
        run=RunFacts(values=RunValues(30, 1, True, (), (), 0, work_not_seen=why)),
    )
    answer = outcome("unused-work", trace)
    assert (answer.answer, answer.why) == ("not checked", f"the run was not watched: {why}")
