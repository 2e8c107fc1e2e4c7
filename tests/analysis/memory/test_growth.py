import numpy as np

from analysis.memory import recordings
from analysis.memory.programs import MIB, Program, user
from analysis.memory.training import ACTIVATION, KIB, Training
from pinchpoint.analysis.memory.growth import growth
from pinchpoint.analysis.memory.history import histories


def test_a_kept_graph_is_found_with_its_line_and_bytes():
    found = growth(recordings.history("leak_graph"))
    leak = found.leaks[0]
    assert (leak.kind, leak.steps) == ("graph", 4)
    assert leak.place.line == 376  # kept.append(r.loss(x, y))
    marks = {m[0]: m[7] for m in recordings.truth("leak_graph")["marks"]}
    grown = marks["step3.end"] - marks["step2.end"]
    assert leak.bytes_per_step == grown == found.bytes_per_step


def test_kept_outputs_are_told_from_a_kept_graph():
    leak = growth(recordings.history("leak_outputs")).leaks[0]
    assert (leak.kind, leak.bytes_per_step) == ("results", 2 * 128 * 8192 * 4)
    assert leak.place.line == 403  # kept.append(r.model(...)) under no_grad


def test_what_the_loop_itself_keeps_is_neither():
    leak = growth(recordings.history("fragmentation")).leaks[0]
    assert (leak.kind, leak.place.line) == ("other", 449)


def test_a_program_that_keeps_one_graph_a_step():
    p = Program()
    t = Training(p)
    for number in range(5):
        t.step(number)
        with p.step(100 + number):
            t.forward(caller=77)
    history = histories(p.trace())[0]
    leak = growth(history).leaks[0]
    assert (leak.kind, leak.bytes_per_step, leak.place.line) == ("graph", 6 * ACTIVATION, 77)


def test_outputs_kept_in_an_evaluation_without_marks():
    p = Program()
    t = Training(p)
    for _ in range(6):
        batch = p.alloc(KIB, user(39))
        t.forward(caller=50, graph=False)  # the result stays
        p.drop(batch, user(51))
    history = histories(p.trace())[0]
    assert history.steps.how == "forward passes"
    leak = growth(history).leaks[0]
    assert (leak.kind, leak.bytes_per_step) == ("results", ACTIVATION)


def test_a_healthy_program_leaves_nothing():
    p = Program()
    t = Training(p)
    for number in range(6):
        t.step(number)
    found = growth(histories(p.trace())[0])
    assert found.leaks == ()
    assert found.bytes_per_step == 0
    assert np.ptp(found.floor[2:]) == 0


def test_a_cache_that_fills_once_is_no_leak():
    p = Program()
    t = Training(p)
    for number in range(6):
        t.step(number)
        if number < 2:
            p.alloc(MIB, user(60))
    assert growth(histories(p.trace())[0]).leaks == ()


def test_a_batch_made_ahead_of_its_step_is_no_leak():
    p = Program()
    t = Training(p)
    waiting = None
    for number in range(8):
        following = p.alloc(MIB, user(60))
        t.step(number)
        if waiting is not None:
            p.drop(waiting, user(60))
        waiting = following
    assert growth(histories(p.trace())[0]).leaks == ()


def test_too_few_steps_are_not_judged():
    p = Program()
    t = Training(p)
    for number in range(3):
        t.step(number)
        p.alloc(KIB, user(60))
    assert "3 steps" in growth(histories(p.trace())[0]).why_not
