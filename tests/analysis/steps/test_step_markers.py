"""Markers that are wrong in ways that recordings show; answers are those of a sound recording."""

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.trace import MemoryKind

STEP = 20_000
WORK = [(500 + 100 * i, 3_000) for i in range(4)]  # launched at, lasting: 12 of 20


def recording(*, steps=3, marked=True, numbers=None):
    b = TraceBuilder()
    for i in range(steps):
        if marked:
            b.step(i if numbers is None else numbers[i], i * STEP, STEP - 10)
        work(b, i * STEP)
    return b


def work(b, at):
    for k, (launched, lasts) in enumerate(WORK):
        b.op("aten::mm", at + launched, 60)
        b.launch(at + launched + 10, 8, "gemm", at + 1_000 + k * lasts, lasts)


def test_a_stub_after_the_last_step_is_no_step():
    b = recording()
    b.step(3, 3 * STEP, 50)
    found = steps(b.trace())
    assert found.number.tolist() == [0, 1, 2]
    assert found.durations_ns.tolist() == [STEP, STEP]
    assert found.basis.startswith("3 step markers")


def test_one_step_and_a_stub_is_one_step():
    b = recording(steps=2)
    b.step(2, 2 * STEP, 50)
    assert steps(b.trace()).typical_ns == STEP


def test_a_marker_after_all_of_the_work_is_no_step():
    b = TraceBuilder()
    work(b, 0)
    b.op("aten::add", STEP - 500, 60)
    b.annotation("Optimizer.step#SGD.step", STEP - 600, 500)
    b.step(1, STEP, 50)
    found = steps(b.trace())
    assert (found.how, len(found)) == ("inferred", 1)
    assert found.basis.startswith("markers hold no work; one optimizer step")


def test_a_marker_of_another_part_of_the_program_is_no_step():
    b = TraceBuilder()
    work(b, 0)
    b.step(1, STEP, 5_000)
    found = steps(b.trace())
    assert (found.how, found.typical_ns) == ("none", 12_000)
    assert found.basis.startswith("markers hold no work, and")


def test_a_short_last_step_that_works_is_a_step():
    b = recording()
    b.step(3, 3 * STEP, 5_000)
    work(b, 3 * STEP)
    assert len(steps(b.trace())) == 4


def test_a_last_step_with_little_of_the_work_is_not_complete():
    b = recording()
    b.step(3, 3 * STEP, 5_000)
    b.launch(3 * STEP + 10, 8, "gemm", 3 * STEP + 30, 3_000)
    assert steps(b.trace()).complete.tolist() == [False, True, True, False]


def test_a_last_marker_without_length_is_left_out():
    b = recording(steps=4)
    b.rows["steps"][3]["duration_ns"] = 0
    found = steps(b.trace())
    assert len(found) == 3
    assert found.typical_ns == STEP


def test_a_marker_without_length_ends_where_the_next_begins():
    b = recording(steps=4)
    b.rows["steps"][1]["duration_ns"] = 0
    assert steps(b.trace()).durations_ns.tolist() == [STEP + 10, STEP - 10, STEP]


def test_a_marker_that_reaches_into_the_next_ends_there():
    b = recording(steps=4)
    b.rows["steps"][1]["duration_ns"] = STEP + 100
    assert steps(b.trace()).durations_ns.tolist() == [STEP + 10, STEP - 10, STEP]


def test_a_marker_that_holds_all_others_of_its_spelling_is_damaged():
    b = recording(steps=4)
    b.rows["steps"][0]["duration_ns"] = 100 * STEP
    assert len(steps(b.trace())) == 4


def test_a_step_after_a_pause_of_the_schedule_is_not_complete():
    b = TraceBuilder()
    for number, at in ((2, 0), (3, STEP), (4, 2 * STEP), (12, 10 * STEP), (13, 11 * STEP)):
        b.step(number, at, STEP - 10)
        work(b, at)
    found = steps(b.trace())
    assert found.complete.tolist() == [False, True, True, False, True]
    assert found.typical_ns == STEP


def test_the_first_step_begins_at_its_own_work_where_earlier_work_still_runs():
    b = TraceBuilder()
    for i in range(20):  # launched before the recording began
        b.add("device_ops", name="gemm", kind=1, start_ns=i * 1_000, duration_ns=995, device=0,
              stream=7)  # fmt: skip
    b.step(1, 100, 15_000)
    for i in range(30):
        b.launch(200 + 400 * i, 10, "gemm", 20_000 + i * 1_000, 995)
    found = steps(b.trace())
    assert (found.start_ns.tolist(), found.end_ns.tolist()) == ([20_000], [49_995])


def test_the_first_step_begins_at_its_own_work_where_it_waited_for_unrecorded_work():
    b = TraceBuilder()
    b.step(1, 100, 15_000)
    for i in range(30):
        b.launch(200 + 400 * i, 10, "gemm", 2_000_000 + i * 1_000, 995)
    assert steps(b.trace()).start_ns.tolist() == [2_000_000]


def test_a_stray_kernel_before_that_wait_is_not_its_beginning():
    b = TraceBuilder()
    b.step(1, 100, 15_000)
    b.launch(110, 10, "prepare", 200, 50, stream=9)
    for i in range(30):
        b.launch(200 + 400 * i, 10, "gemm", 2_000_000 + i * 1_000, 995)
    assert steps(b.trace()).start_ns.tolist() == [2_000_000]


@pytest.mark.parametrize(
    ("source", "begins_ns"),
    [(MemoryKind.PINNED, 2_000_000), (MemoryKind.HOST, 100), (MemoryKind.PAGEABLE, 100)],
)
def test_a_copy_whose_pages_are_made_ready_first_waited_for_nobody(source, begins_ns):
    b = TraceBuilder()
    b.step(1, 100, 15_000)
    b.copy(200, 10, "MEMCPY_ASYNC", 2_000_000, 800_000, size=1, source=source, target=1)
    for i in range(30):
        b.launch(300 + 400 * i, 10, "gemm", 2_800_000 + i * 1_000, 995)
    assert steps(b.trace()).start_ns.tolist() == [begins_ns]


def test_a_stub_before_a_pause_is_no_step():
    b = TraceBuilder()
    for number, at in ((0, 0), (1, STEP), (5, 10 * STEP), (6, 11 * STEP)):
        b.step(number, at, STEP - 10)
        work(b, at)
    b.step(2, 2 * STEP, 50)
    b.step(7, 12 * STEP, 50)
    found = steps(b.trace())
    assert found.number.tolist() == [0, 1, 5, 6]
    assert found.durations_ns.tolist() == [STEP, STEP]


def test_a_last_marker_of_absurd_length_ends_with_the_recording():
    b = recording(steps=4)
    b.rows["steps"][3]["duration_ns"] = 10**15
    assert steps(b.trace()).durations_ns.max() <= STEP


def test_a_long_pause_after_earlier_work_is_of_the_first_step():
    b = TraceBuilder()
    b.launch(0, 10, "gemm", 20, 500)
    b.step(1, 100, 15_000)
    b.launch(9_000, 10, "gemm", 10_000, 1_000)
    assert steps(b.trace()).start_ns.tolist() == [520]


def test_markers_that_were_never_closed_end_where_the_next_begins_and_the_last_is_not_whole():
    b = recording(steps=4, marked=False)
    for i in range(4):
        b.step(i, i * STEP, (40 - i) * STEP)  # all end with the recording
    found = steps(b.trace())
    assert found.durations_ns.tolist() == [STEP, STEP]
    assert found.complete.tolist() == [False, True, True, False]
    assert found.end_ns[-1] - found.start_ns[-1] <= STEP
