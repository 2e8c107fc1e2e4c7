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
    assert low == pytest.approx(0.5 * 0.5 * 2e6, rel=0.02)
    assert high == pytest.approx((1 - 0.6 * 0.5) * 2e6, rel=0.02)


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
