"""Waiting for the device at the end of a recording, and when not to."""

import sys
import threading
from types import SimpleNamespace

import pytest

from pinchpoint.capture.settings import Settings
from pinchpoint.capture.windows import all_threads, threads
from pinchpoint.capture.windows.all_threads import let_the_device_catch_up
from pinchpoint.capture.windows.threads import watch_captures


@pytest.fixture
def waited(monkeypatch):
    """Devices that were waited for, of four of which this process uses the third."""
    monkeypatch.setattr(threads._Captures, "count", 0)
    seen = []
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 4,
        memory_reserved=lambda device: 1024 if device == 2 else 0,
        synchronize=seen.append,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    return seen


def test_only_devices_in_use_are_waited_for(waited):
    assert let_the_device_catch_up()
    assert waited == [2]


def test_nothing_happens_while_a_graph_is_captured(waited):
    class Graph:
        def __enter__(self):
            return "inside"

        def __exit__(self, *raised):
            return False

    watch_captures(SimpleNamespace(graph=Graph))
    with Graph() as entered:
        assert entered == "inside"
        assert not let_the_device_catch_up()
    assert waited == []
    assert let_the_device_catch_up()


def test_a_device_that_hangs_is_given_up(waited, monkeypatch):
    free = threading.Event()
    monkeypatch.setattr(all_threads, "CATCH_UP_S", 0.05)
    monkeypatch.setattr(sys.modules["torch"].cuda, "synchronize", lambda device: free.wait(5))
    assert not let_the_device_catch_up()
    free.set()


def test_an_error_of_the_device_is_not_the_programs(waited, monkeypatch):
    def fails(device):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(all_threads, "CATCH_UP_S", 0.05)
    monkeypatch.setattr(sys.modules["torch"].cuda, "synchronize", fails)
    assert not let_the_device_catch_up()


def test_nobody_is_told_of_a_recording_that_has_not_begun_or_ends(tmp_path, monkeypatch):
    """torch 2.11 failed in the program's torch.compile where a range began between the two."""
    profiler = pytest.importorskip("torch").autograd.profiler
    told = []
    for name in ("_enable_profiler", "_disable_profiler"):
        real = getattr(profiler, name)
        monkeypatch.setattr(
            profiler,
            name,
            lambda *given, real=real, name=name: (
                told.append((name, profiler._is_profiler_enabled)),
                real(*given),
            )[1],
        )
    window = all_threads.GlobalWindow(Settings(folder=str(tmp_path)), tmp_path, "here")
    window.prime()
    window.open()
    window.step()
    assert profiler._is_profiler_enabled
    assert window.close().problem is None
    assert told == [("_enable_profiler", False), ("_disable_profiler", False)]
