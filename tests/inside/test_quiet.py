import sys
import threading

import pytest

from pinchpoint.inside import quiet

TASK_CLOCK = (1, 1)  # PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK: there without hardware


def test_a_counter_grows_with_the_work():
    count = quiet.instruction_counter(TASK_CLOCK)
    if count() is None:
        pytest.skip("perf_event_open is not permitted here")
    first, second, third = count(), sum(range(300_000)) and count(), count()
    assert second - first > third - second > 0


def test_without_a_counter_of_instructions_nothing_is_known(monkeypatch):
    monkeypatch.setattr(quiet, "_PMUS", "/nowhere")
    assert quiet.instruction_counter()() is None


def test_waiting_for_a_cpu_is_of_one_thread(monkeypatch):
    waited = quiet.queue_clock()
    first = waited()
    assert first is None or waited() >= first >= 0
    monkeypatch.setattr(quiet.threading, "get_ident", lambda: -1)
    assert waited() is None


def test_imports_are_no_work_of_the_process(monkeypatch, tmp_path):
    clock = iter([(0, 0, 0), (100, 10, 1), (350, 200, 3), (1000, 300, 4)])
    monkeypatch.setattr(quiet.Work, "_now", lambda self: next(clock))
    machinery = sys.modules["_frozen_importlib"]
    monkeypatch.setattr(machinery, "_find_and_load", machinery._find_and_load)
    (tmp_path / "outer_one.py").write_text("import inner_one")
    (tmp_path / "inner_one.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    work = quiet.Work()
    work.watch_imports()
    import outer_one  # noqa: F401 - from 100 to 350, with what it imports

    assert {k: v for k, v in work.so_far().items() if k != "queue_ns"} == {
        "wall_ns": 750,
        "cpu_ns": 110,
        "imports_ns": 250,
    }


def test_totals_are_read_again_where_the_thread_lost_its_cpu_in_between(monkeypatch):
    """The clock before and after each reading, in ns: the first takes 3 ms, the second 10 µs."""
    clock = iter([0, 3_000_000, 3_001_000, 3_011_000])
    monkeypatch.setattr(quiet.time, "perf_counter_ns", lambda: next(clock))
    totals = iter([3, 5])
    assert quiet.at_once(lambda: next(totals)) == (3_011_000, 5)


def test_totals_that_are_never_read_at_once_are_those_of_the_last_reading(monkeypatch):
    clock = iter(range(0, 60_000_000, 10_000_000))
    monkeypatch.setattr(quiet.time, "perf_counter_ns", lambda: next(clock))
    assert quiet.at_once(lambda: 7) == (50_000_000, 7)


def test_other_threads_are_those_of_now(monkeypatch):
    """One that has begun since the last reading counts from its begin, one that ended is gone."""
    totals, go, end = quiet.other_threads(), threading.Event(), threading.Event()
    before = totals()
    if before is None:
        pytest.skip("the system does not tell")

    def work():
        sum(range(300_000))
        go.set()
        end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    go.wait()
    now = totals()
    assert set(now) == {*before, thread.native_id}
    busiest_ns, waited_ns = quiet.between(before, now)
    assert busiest_ns > 0
    assert waited_ns >= 0
    end.set()
    thread.join()
    assert quiet.between(None, now) == quiet.between(now, None) == (None, None)


def test_more_threads_than_can_be_read_at_once_are_not_known(monkeypatch):
    monkeypatch.setattr(quiet, "_MOST_THREADS", 0)
    assert quiet.other_threads()() is None
