"""A profiler with stacks begins where no other thread is inside of a module."""

import sys
import threading
import time
from types import SimpleNamespace

import pytest

from pinchpoint.capture.windows import threads
from pinchpoint.capture.windows.threads import begin_with_stacks


class Module:
    def __call__(self, until):
        until()

    _call_impl = __call__


@pytest.fixture(autouse=True)
def modules(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.nn", SimpleNamespace(Module=Module))
    monkeypatch.setitem(sys.modules, "torch.optim", SimpleNamespace(Optimizer=object))
    for elsewhere in ("graph_is_captured", "captures_under_way"):
        monkeypatch.setattr(threads, elsewhere, lambda: False)


def ask(**options):
    """Ask for it in a thread of its own: what began where, and what was answered or raised."""
    began, told = [], []

    def begin():
        began.append(threading.get_ident())

    def asks():
        told.append(begin_with_stacks(options.pop("begin", begin), **options))

    return threading.Thread(target=asks), began, told


def test_it_begins_where_it_was_asked_if_the_main_thread_stays_in_a_call(monkeypatch):
    monkeypatch.setattr(threads, "in_main_thread", lambda act, within_s: None)
    asked, began, told = ask()
    asked.start()
    asked.join()
    assert (told, len(began)) == ([True], 1)
    assert began != [threading.main_thread().ident]


def test_it_begins_between_two_instructions_of_the_main_thread():
    asked, began, told = ask()
    asked.start()
    while asked.is_alive():
        pass
    assert (told, began) == ([True], [threading.main_thread().ident])


def test_it_begins_in_the_main_thread_if_only_that_is_in_a_module():
    asked, began, told = ask()

    def works():
        asked.start()
        while asked.is_alive():
            pass

    Module()(works)
    assert (told, began) == ([True], [threading.main_thread().ident])


def test_it_does_not_begin_beside_a_thread_that_stays_in_a_module():
    leave, inside = threading.Event(), threading.Event()

    def works():
        inside.set()
        leave.wait()

    worker = threading.Thread(target=Module(), args=(works,))
    worker.start()
    inside.wait()
    assert not begin_with_stacks(pytest.fail, 0.0)
    leave.set()
    worker.join()
    began = []
    assert begin_with_stacks(lambda: began.append(1), 0.0)
    assert began == [1]


def test_what_goes_wrong_is_raised_where_it_was_asked():
    interval_s = sys.getswitchinterval()

    def fails():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        begin_with_stacks(fails)
    assert sys.getswitchinterval() == interval_s


def test_a_real_recording_begins_inside_of_the_main_threads_module(tmp_path, monkeypatch):
    monkeypatch.undo()
    for elsewhere in ("graph_is_captured", "captures_under_way"):  # by what other tests left
        monkeypatch.setattr(threads, elsewhere, lambda: False)
    torch = pytest.importorskip("torch", reason="needs torch")
    from pinchpoint.capture.settings import Settings
    from pinchpoint.capture.windows.all_threads import GlobalWindow

    window = GlobalWindow(Settings(folder=str(tmp_path), stacks=True), tmp_path, "here")
    window.prime()
    recordings = []

    class Loops(torch.nn.Module):
        def forward(self, x):
            while records.is_alive():
                x = x * 1.0
                time.sleep(0.001)
            return x

    def record():
        window.open()
        window.step()
        time.sleep(0.1)
        recordings.append(window.close())

    records = threading.Thread(target=record)
    model = Loops()
    records.start()
    model(torch.ones(2))
    (recording,) = recordings
    assert recording.problem is None
    assert recording.stacks
    assert recording.file.operators


def test_the_programs_own_function_that_hears_of_calls_is_back_after_a_window(tmp_path):
    torch = pytest.importorskip("torch", reason="needs torch")
    from pinchpoint.capture.settings import Settings
    from pinchpoint.capture.windows.torch import TorchWindow

    def heard(frame, event, what):
        """What a program profiles itself with."""

    before = sys.getprofile()
    window = TorchWindow(Settings(folder=str(tmp_path), stacks=True), tmp_path, "own")
    try:
        sys.setprofile(heard)
        window.open()
        window.step()
        torch.ones(4).sum()
        window.step()
        assert window.close().problem is None
        assert sys.getprofile() is heard
    finally:
        sys.setprofile(before)
