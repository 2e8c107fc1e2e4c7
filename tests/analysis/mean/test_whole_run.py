"""Where the time of a whole run goes, by looks at its threads."""

import pytest

from looked_at_runs import (
    IMPORTING,
    SECOND_NS,
    computing,
    in_numpy,
    looked_at,
    spent,
    thread,
    waiting,
)
from pinchpoint.analysis.mean.crew import crew
from pinchpoint.analysis.mean.ways import Way, wait_of
from pinchpoint.analysis.mean.whole_run import only_samples, run_account, wilson
from pinchpoint.trace.run_samples import Garbage


def test_ways_add_up_to_the_run_and_places_say_what_they_are_at():
    trace = looked_at(
        thread(
            computing(5, "parse", 3, "pattern.match()"),
            computing(6, "parse", 1),
            in_numpy(9, "fit", 2),
            waiting(12, "fetch", 3, "S sk_wait_data", "connection.recv()"),
            spent(IMPORTING, 0.5),
        ),
        garbage=Garbage(SECOND_NS, 5, 0, ()),
        total_s=10,
    )
    account = run_account(trace)
    seconds = {way: ns / SECOND_NS for way, ns in account.ways.items()}
    assert seconds == {
        Way.INTERPRETER: 3,
        Way.NETWORK: 3,
        Way.OUTSIDE: 2,
        Way.GARBAGE: 1,
        Way.IMPORT: 0.5,
        Way.UNSEEN: 0.5,
    }
    parse, fetch, fit = account.places
    assert (parse.at.line, parse.call, parse.call_ratio) == (5, "pattern.match()", 0.75)
    assert (fetch.main_way, fetch.call) == (Way.NETWORK, "connection.recv()")
    assert (fit.at.line, fit.inside) == (9, "numpy.linalg.linalg.eigh")
    assert only_samples(trace)


def test_a_thread_that_was_ready_and_ran_on_no_core_lacked_one():
    short = spent(("work.py(3): f",), 10, on_core=0.4, held=1.0)
    account = run_account(looked_at(thread(short, queued=6)))
    assert account.ways == {Way.NO_CORE: 6 * SECOND_NS, Way.INTERPRETER: 4 * SECOND_NS}
    assert account.places[0].main_way is Way.INTERPRETER
    # Where nobody queued, it waited for other threads of the library that it called.
    account = run_account(looked_at(thread(short, queued=0)))
    assert account.ways == {Way.INTERPRETER: 10 * SECOND_NS}


def test_one_call_of_a_numeric_library_computes_though_it_keeps_the_lock():
    frames = ("numpy/linalg/linalg.py(9): eigvalsh", "work.py(3): f")
    one_spot = spent(frames, 10, doing="gufunc()", held=1.0)
    assert run_account(looked_at(thread(one_spot))).places[0].main_way is Way.OUTSIDE
    spots = [
        spent((f"numpy/core/arrayprint.py({n}): f{n}", "work.py(3): f"), 1, doing="g()", held=1.0)
        for n in range(10)
    ]
    assert run_account(looked_at(thread(*spots))).places[0].main_way is Way.INTERPRETER


def test_looks_that_waited_for_the_lock_may_be_of_what_came_before_the_call():
    """A gather that keeps the lock, then a reduction that gives it up, at which the looks come."""
    gather = spent(("work.py(5): features",), 0.1, doing="table.gather()", held=1.0)
    reduction = spent(("work.py(6): features",), 4, doing="rows.sum()", held=0.2)
    elsewhere = spent(("work.py(9): other",), 5.9, doing="x.dot()")
    account = run_account(looked_at(thread(gather, reduction, elsewhere)))
    place = next(p for p in account.places if p.at.function == "features")
    assert place.ways == {Way.OUTSIDE: 3.3 * SECOND_NS, Way.INTERPRETER: 0.8 * SECOND_NS}
    assert (place.call, place.call_ratio) == ("rows.sum()", pytest.approx(3.2 / 4.1))
    plain = run_account(looked_at(thread(gather, elsewhere, spent(reduction.frames[:1], 4))))
    sure = next(p for p in plain.places if p.at.function == "features").share
    assert place.share.ns == sure.ns
    assert place.share.least_ratio == pytest.approx(sure.least_ratio * 3.3 / 4.1)


@pytest.mark.parametrize(
    ("frames", "word", "way"),
    [
        pytest.param((), "S hrtimer_nanosleep", Way.SLEEP, id="timer"),
        pytest.param((), "S futex_wait_queue", Way.LOCK, id="lock"),
        pytest.param((), "D io_schedule", Way.FILES, id="disk"),
        pytest.param((), "D of_some_driver", Way.FILES, id="not to be interrupted"),
        pytest.param((), "S do_wait", Way.PROCESS, id="child"),
        pytest.param((), "S wait_woken", Way.NETWORK, id="socket"),
        pytest.param((), "S anon_pipe_read", Way.PROCESS, id="pipe"),
        pytest.param(("subprocess.py(9): _communicate",), "S poll", Way.PROCESS, id="a program"),
        pytest.param(("asyncio/base_events.py(9): run",), "S ep_poll", Way.NETWORK, id="asyncio"),
        pytest.param(("threading.py(9): wait",), "", Way.LOCK, id="not told, by the module"),
        pytest.param((), "S of_some_driver", Way.WAIT, id="neither"),
    ],
)
def test_what_is_waited_for_is_told_by_the_kernel_and_pythons_modules(frames, word, way):
    assert wait_of(spent((*frames, "work.py(3): f"), on_core=0.0, word=word)) is way


def test_the_interval_of_a_share_is_wilsons():
    low, high = wilson(0.5, 100)
    assert (round(low, 4), round(high, 4)) == (0.4038, 0.5962)
    assert wilson(0.0, 0) == (0.0, 1.0)
    sure = run_account(looked_at(thread(computing(3, "f", 1), computing(9, "g", 1)))).places[0]
    assert sure.share.range_ns == pytest.approx((0.8076e9, 1.1924e9), rel=1e-3)


def test_whoever_works_while_the_main_thread_waits_is_looked_at():
    wait = spent(("threading.py(9): wait", "work.py(7): main"), 10, on_core=0.0)
    idle = spent(("queue.py(9): get", "threading.py(1): run"), 5, on_core=0.0)
    works = [thread(computing(3, "f", 5), idle, main=False, name=f"pool-{n}") for n in range(2)]
    team = crew(looked_at(thread(wait), *works))
    assert (team.name, team.wait_ns) == ("its 2 threads", 10 * SECOND_NS)
    assert [place.at.function for place in team.places] == ["f"]
    assert team.places[0].share.ns == 10 * SECOND_NS
    assert {member.idle_ns for member in team.members} == {5 * SECOND_NS}
    assert crew(looked_at(thread(wait), thread(idle, main=False))) is None
