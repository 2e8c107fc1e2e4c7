"""Looks at threads, without the thread that makes them at its own pace."""

import gc
import sys
import threading
from types import SimpleNamespace

import pytest

from pinchpoint.capture.process.ranks import Identity
from pinchpoint.capture.process.session import CaptureSession
from pinchpoint.capture.process.stage import Stage
from pinchpoint.capture.samples.host_facts import HostFacts
from pinchpoint.capture.samples.sampler import Sampler
from pinchpoint.capture.samples.spans import Spans
from pinchpoint.capture.samples.stacks import StackTable, line_of, relative, stack_of
from pinchpoint.capture.samples.whole_run import WholeRun
from pinchpoint.capture.settings import Settings
from pinchpoint.importers.run_folder.samples import run_samples
from pinchpoint.run_folder.documents import ProcessDocument


@pytest.fixture
def waiting():
    """A thread that waits in ``wait_for_work``; given is its thread."""
    begun, go_on = threading.Event(), threading.Event()

    def wait_for_work():
        begun.set()
        go_on.wait()

    thread = threading.Thread(target=wait_for_work, name="feeder")
    thread.start()
    begun.wait()
    yield thread
    go_on.set()
    thread.join()


def test_a_look_sees_every_thread_but_ours(waiting):
    sampler = Sampler(lambda: False)
    ours = threading.Event()
    mine = threading.Thread(target=ours.wait, name="pinchpoint-watch")
    mine.start()
    for _ in range(3):
        sampler._look(0, 20_000_000, 20_000_000)
    ours.set()
    mine.join()
    found = sampler.document()
    names = {thread["name"]: thread for thread in found["threads"]}
    assert names["feeder"]["looks"] == 3
    assert "pinchpoint-watch" not in names
    assert found["threads"][0]["main"]
    frames, stacks, _ = sampler.table.spelt([number for number, _ in names["feeder"]["stacks"]])
    functions = [frames[row][2] for row in next(iter(stacks.values()))]
    assert functions.index("wait") < functions.index("wait_for_work")  # innermost first


def test_looks_at_an_overdue_step_are_no_samples_of_the_run(waiting):
    sampler = Sampler(lambda: False)
    sampler._look(0, 20_000_000, 20_000_000)
    sampler._look(0, 5_000_000, None)
    taken, looks = sampler.take()
    assert looks == 2
    me = threading.main_thread().ident
    assert sum(us for (thread, _), us in taken.items() if thread == me) == 25_000
    assert sampler.looks == 1
    assert sampler.take() == ({}, 0)


def test_the_same_stack_has_one_number_and_another_line_another():
    table = StackTable()

    def inner():
        return table.number(stack_of(threading.get_ident()))

    same = [inner() for _ in range(3)]
    assert len(set(same)) == 1
    assert inner() != same[0]


def test_lines_are_those_that_ran():
    def three():
        here = sys._getframe()
        return here.f_code, here.f_lasti, here.f_lineno

    code, at, line = three()
    assert line_of(code, at) == line


def test_files_are_spelt_as_the_profiler_does():
    roots = ["/env/lib/python3/site-packages/", "/env/lib/python3/", "/home/"]
    found = relative("/env/lib/python3/site-packages/torch/serialization.py", roots)
    assert found == "torch/serialization.py"
    assert relative("/elsewhere/train.py", roots) == "/elsewhere/train.py"


def test_collections_and_saves_are_timed():
    spans = Spans()
    stop = spans.watch_collections()
    module = SimpleNamespace(save=lambda *args: sum(range(1000)))
    spans.watch_saves(module)
    gc.collect()
    assert module.save("state") == 499_500
    stop()
    gc_ns, save_ns, called_at = spans.take()
    code, at = called_at[0]
    assert code is test_collections_and_saves_are_timed.__code__
    assert line_of(code, at) == code.co_firstlineno + 5
    assert gc_ns > 0
    assert save_ns > 0
    assert spans.take() == (0, 0, ())
    spans.thread = -1  # steps are made in another thread: its saves alone hold them up
    module.save("state")
    assert spans.take() == (0, 0, ())


class Pool:
    def collect(self):
        """Python may begin to collect by itself in here, with this call under way."""
        spans = Spans()
        spans._collects("start", {"generation": 2})
        return spans.take()[2]


@pytest.fixture
def little_to_collect():
    """What other tests left is not looked through by each collection."""
    gc.freeze()


@pytest.mark.usefixtures("little_to_collect")
def test_only_a_call_of_the_collector_is_one():
    assert Pool().collect() == ()
    spans = Spans()
    for call, told in (
        (lambda: gc.collect(), True),
        (lambda: sum([gc.collect(), *range(3)]), True),
        (lambda: [len(str(gc)) for _ in range(3)] and Pool().collect(), False),
        (lambda: spans._collects("start", {"generation": 2}), False),
    ):
        for _ in range(20):  # Python 3.11 calls in another way once it knows a line
            stop = spans.watch_collections()
            call()
            stop()
            assert bool(spans.take()[2]) == told


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files of Linux")
def test_the_systems_counters_grow():
    facts = HostFacts(threading.get_native_id())
    first, second = facts.read(), facts.read()
    assert second.queued_ns >= first.queued_ns
    assert second.faults >= first.faults


def test_what_is_written_can_be_read(tmp_path, waiting):
    session = CaptureSession(
        Settings(str(tmp_path)), Identity(0, 1, 0, "host", 42, False), lambda kind: None, print
    )
    whole = WholeRun(session)
    session.stage = Stage.DONE
    session.clock.edge()
    session.stepped = whole._stepped
    for _ in range(12):
        whole.sampler._look(0, 20_000_000, 20_000_000)
        session.clock.edge()
        session.stepped()
    whole.save()
    found = run_samples(tmp_path, ProcessDocument(pid=42))
    assert found.count == 10  # of twelve steps, two are never judged
    assert {thread.name for thread in found.threads} >= {"MainThread", "feeder"}
    feeder = next(thread for thread in found.threads if thread.name == "feeder")
    assert any("wait_for_work" in name for name in found.spelt(feeder.stacks[0][0]))
    assert run_samples(tmp_path, ProcessDocument(pid=43)) is None


def test_looks_at_the_cold_steps_of_the_main_thread_are_set_aside():
    sampler = Sampler(lambda: False)
    for _ in range(2):
        sampler._look(0, 20_000_000, 20_000_000)
    sampler.begin_anew()
    found = sampler.document()
    assert sum(looks for _, looks in found["start"]) == 2
    assert found["threads"] == []


def test_a_stack_is_taken_whole_without_keeping_a_frame_or_the_collector_off():
    def inner():
        return stack_of(threading.get_ident())

    places = inner()
    names = [code.co_name for code, _ in places]
    assert names[:3] == ["stack_of", "inner", sys._getframe().f_code.co_name]
    assert names[-1] == "<module>" or len(names) > 10
    assert gc.isenabled()
    gc.disable()
    try:
        assert stack_of(-1) == []  # no such thread
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_notes_written_at_a_look_are_among_what_it_cost_by_then():
    """Else they would count as time of the next looks, which would come less often for it."""
    order, enough = [], threading.Event()

    def after_look():
        order.append("notes")

    sampler = Sampler(lambda: False, every_s=0.001, after_look=after_look)
    woke = sampler.pace.woke

    def woken(look_ns):
        order.append("woke" if look_ns is not None else "no look")
        woke(look_ns)
        if order.count("woke") > 1:
            enough.set()

    sampler.pace.woke = woken
    sampler.start()
    assert enough.wait(30)
    sampler.end()
    looked = [one for one in order if one != "no look"]
    assert looked[: 2 * (len(looked) // 2)] == ["notes", "woke"] * (len(looked) // 2)
