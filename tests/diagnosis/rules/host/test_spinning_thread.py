from dataclasses import replace

import pytest

from builders import TraceBuilder
from looked_at_runs import looked_at, spent, thread

MS = 1_000_000
WAITS_FOR = ("threading.py(327): wait", "queue.py(171): get")
FILL = "feed.py(28): fill"


def steps_of_two_ms():
    builder = TraceBuilder()
    builder.devices = []
    for step in range(6):
        builder.step(step, step * 2 * MS, 2 * MS)
        builder.op("aten::add", step * 2 * MS + 10, 2 * MS - 20)
    return builder.trace()


MAIN = (spent(("train.py(40): step",), 10.0, on_core=0.6),)


def run_with(*others, main=MAIN):
    """Ten seconds of such steps, beside these threads."""
    run = looked_at(thread(*main), *(thread(*one, main=False, name="feeder") for one in others)).run
    return replace(steps_of_two_ms(), run=run)


def test_an_empty_loop_costs_between_half_of_its_core_and_all_that_is_lost(outcome):
    seen = run_with([spent((FILL,), 10.0, on_core=0.5)])
    (finding,) = outcome("spinning-thread", seen).findings
    assert (finding.location.file, finding.location.line) == ("feed.py", 28)
    assert "50 % of the time on a core" in finding.summary
    low, high = finding.saving_ns_per_step
    assert low == pytest.approx(0.4 * 2e6, rel=0.02)  # asleep in work of its own
    assert high == pytest.approx((1 - 0.6 * 0.5) * 2e6, rel=0.02)


def test_what_the_steps_had_no_core_for_or_slept_by_themselves_is_not_surely_won(outcome):
    spinning = thread(spent((FILL,), 10.0, on_core=0.5), main=False, name="feeder")
    run = looked_at(thread(*MAIN, queued=3.5), spinning).run
    (finding,) = outcome("spinning-thread", replace(steps_of_two_ms(), run=run)).findings
    assert finding.saving_ns_per_step[0] == pytest.approx(0.5 * 0.5 * 2e6, rel=0.02)
    run = looked_at(thread(spent(MAIN[0].frames, 10.0, on_core=0.2), queued=8.0), spinning).run
    (finding,) = outcome("spinning-thread", replace(steps_of_two_ms(), run=run)).findings
    assert finding.saving_ns_per_step[0] == pytest.approx(0.5 * 0.5 / 0.7 * 2e6, rel=0.02)
    slept = [spent(("train.py(40): step",), 10.0, on_core=0.6, word="S hrtimer_nanosleep")]
    (finding,) = outcome(
        "spinning-thread", run_with([spent((FILL,), 10.0, on_core=0.5)], main=slept)
    ).findings
    assert finding.saving_ns_per_step[0] == pytest.approx(0.5 * 0.5 * 2e6, rel=0.02)


POLL = ("lanes.py(73): take", "lanes.py(93): dispatch")
GET = ("queue.py(199): get_nowait", "lanes.py(63): poll", *POLL)


def loop(*more, asks=3.0, between=5.0):
    """A thread that asks two queues by turns, in functions of the program's own."""
    return [
        spent(("threading.py(274): __exit__", "queue.py(165): get", *GET), asks, on_core=0.5),
        spent(("lanes.py(65): poll", *POLL), between, on_core=0.5),
        spent(("lanes.py(72): take", *POLL[1:]), 1.0, on_core=0.5, doing="time.perf_counter()"),
        *more,
    ]


PUTS = spent((WAITS_FOR[0], "queue.py(140): put", "lanes.py(102): dispatch"), 8.0, on_core=0.1)


def test_a_loop_of_several_lines_that_asks_is_told_at_the_line_that_asks(outcome):
    """It waits properly elsewhere, for 8 of 17 s, and is on a core for 4.5 s in the loop."""
    (finding,) = outcome("spinning-thread", run_with(loop(PUTS))).findings
    assert (finding.location.function, finding.location.line) == ("poll", 63)
    assert "53 % of the looks find it asking in poll (lanes.py:63)" in finding.summary
    assert "26 % of the time on a core" in finding.summary


@pytest.mark.parametrize(
    "other",
    [
        loop(spent(("lanes.py(66): poll", *POLL), 2.0, doing="np.stack()")),
        loop(*(spent((f"lanes.py({n}): poll", *POLL), 3.0) for n in (61, 66, 67)), asks=1.0),
        [spent((*WAITS_FOR, "lanes.py(63): poll", *POLL), 9.0, on_core=0.05), *loop()[1:2]],
        loop(spent(("lanes.py(120): other",), 9.0, doing="np.sort()")),
    ],
    ids=["does something with each", "mostly computes", "waits in the queue", "works elsewhere"],
)
def test_loops_that_do_more_than_to_ask_are_not_meant(outcome, other):
    assert outcome("spinning-thread", run_with(other)).answer == "clear"


def test_steps_of_another_thread_than_the_main_one(outcome):
    """The main thread waits for all others; the recording names the model's thread by its number,
    whose 0.4 s of each second in work of its own without a core are lost."""
    joins = thread(spent(("threading.py(1119): join", "serve.py(9): main"), 10.0, on_core=0.0))
    model = replace(thread(*MAIN, main=False, name="model"), native=77)
    other = thread(*loop(), main=False, name="dispatch")
    trace = steps_of_two_ms()
    of_steps = replace(trace.threads[0], process="70", thread="77")
    trace = replace(trace, threads=(of_steps, *trace.threads[1:]))
    run = looked_at(joins, model, other).run
    (finding,) = outcome("spinning-thread", replace(trace, run=run)).findings
    assert finding.saving_ns_per_step[0] == pytest.approx(0.4 * 2e6, rel=0.02)


def test_waits_of_the_steps_for_work_are_not_won(outcome):
    main = (
        spent(("train.py(40): step",), 5.0, on_core=1.0),
        spent(WAITS_FOR, 5.0, on_core=0.0, word="S futex_wait_queue"),
    )
    seen = run_with([spent((FILL,), 10.0, on_core=0.2, doing="time.sleep()")], main=main)
    (finding,) = outcome("spinning-thread", seen).findings
    low, high = finding.saving_ns_per_step
    assert low == pytest.approx(0.1 * 2e6, rel=0.02)
    assert high == pytest.approx((0.5 - 0.5 * 0.8) * 2e6, rel=0.05)


@pytest.mark.parametrize(
    "other",
    [
        [spent((FILL,), 10.0, on_core=0.02, doing="time.sleep()")],
        [spent(WAITS_FOR, 10.0, on_core=0.0, word="S futex_wait_queue")],
        [spent((FILL,), 10.0, on_core=0.9, doing="rng.standard_normal()")],
        [spent((f"feed.py({n}): fill",), 1.0, on_core=0.9) for n in range(10)],
        [spent((FILL,), 0.2, on_core=0.9)],
    ],
    ids=["pauses of a millisecond", "a queue", "work in a library", "many lines", "few looks"],
)
def test_threads_that_sleep_or_work_are_not_meant(outcome, other):
    assert outcome("spinning-thread", run_with(other)).answer == "clear"


def test_without_looks_it_is_not_checked(outcome):
    assert outcome("spinning-thread", steps_of_two_ms()).answer == "not checked"
