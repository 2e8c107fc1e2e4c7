"""What is open when a recording ends does not write into it from the next one."""

import functools
import hashlib
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from pinchpoint.capture.samples.caches import Caches
from pinchpoint.capture.windows import left_open
from pinchpoint.capture.windows.left_open import (
    all_left_compiled_code,
    all_moved_on,
    in_compiled_code,
    let_ranges_go,
    places,
)

TWO_RECORDINGS = """
import sys, tempfile, gc
from pathlib import Path
import torch, torch.profiler
from torch.autograd.profiler import record_function
from pinchpoint.capture.settings import Settings
from pinchpoint.capture.windows import new_window

folder, every, spans, x = Path(tempfile.mkdtemp()), sys.argv[1] == "all", [], torch.ones(8, 8)
for work in ("enter", "exit"):
    window = new_window(Settings(str(folder)), folder, work, all_threads=every)
    window.prime()
    window.open()
    window.step()
    for number in range(300):
        if work == "enter":
            spans.append(record_function(f"span {number}").__enter__())
        else:
            spans.pop().__exit__(None, None, None)
        x @ x
    window.step()
    recording = window.close()
    assert recording.file, recording.problem
    del window
    gc.collect()
print("lives")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what is freed is unmapped by glibc alone")
@pytest.mark.parametrize("threads", ["one", "all"])
def test_ranges_that_two_recordings_see_half_of_write_nowhere(threads):
    pytest.importorskip("torch")
    # Each list of events lies in pages of its own: who writes to a freed one ends by signal 11.
    unmapped = {"MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_MMAP_MAX_": "1000000"}
    done = subprocess.run(
        [sys.executable, "-c", TWO_RECORDINGS, threads],
        env=os.environ | unmapped,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith("lives\n")


class Range:
    """As ``record_function``: a name, and a record while it is open."""

    def __init__(self, name, record):
        self.name, self.args, self.record = name, None, record


def test_an_open_range_gets_a_record_of_no_recording(monkeypatch):
    monkeypatch.setattr(left_open, "_ended", kept := [])
    torch = SimpleNamespace(
        autograd=SimpleNamespace(profiler=SimpleNamespace(record_function=Range)),
        ops=SimpleNamespace(
            profiler=SimpleNamespace(_record_function_enter_new=lambda name, args: f"new {name}")
        ),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    open_one, not_begun = Range("epoch", "old"), Range("later", None)
    let_ranges_go()
    assert (open_one.record, not_begun.record, kept) == ("new epoch", None, ["old"])


def test_a_thread_has_moved_on_once_it_is_at_another_instruction():
    free, at_work = threading.Event(), threading.Event()

    def works():
        at_work.set()
        while not free.is_set():
            time.sleep(0.001)  # as an operator: it is called from here
        library_waits.wait()

    library_waits = threading.Event()
    thread = threading.Thread(target=works)
    thread.start()
    at_work.wait()
    since = {thread.ident: (0, -1)}
    assert all_moved_on(since)  # it is elsewhere
    while thread.ident not in (where := places()):
        pass
    stays = {thread.ident: where[thread.ident]}
    free.set()
    assert all_moved_on(stays)
    assert thread.ident not in places() or not all_moved_on(places(), 0.0)
    library_waits.set()
    thread.join()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the time of a thread")
@pytest.mark.parametrize(
    ("stays", "parked"),
    [
        pytest.param(lambda: time.sleep(3), True, id="asleep"),
        pytest.param(lambda: hashlib.pbkdf2_hmac("sha256", b"", b"", 1 << 22), False, id="at work"),
    ],
)
def test_a_thread_that_stays_where_it_was_may_sleep_and_not_work(stays, parked):
    thread = threading.Thread(target=stays, daemon=True)
    thread.start()
    while thread.ident not in (since := places()):
        time.sleep(0.01)
    assert all_moved_on({thread.ident: since[thread.ident]}, 0.3) is parked
    thread.join()


def test_caches_are_found_while_other_threads_make_tuples(monkeypatch):
    """Whoever holds all objects there are makes ``tuple(generator)`` of another thread fail."""
    # What other tests left in this process are more blocks, and caches with more misses.
    monkeypatch.setattr("pinchpoint.capture.samples.caches.MOST_BLOCKS", sys.maxsize)
    monkeypatch.setattr("pinchpoint.capture.samples.caches.MOST_CACHES", sys.maxsize)

    @functools.lru_cache(maxsize=2)
    def cached(number):
        return number

    for number in range(200):
        cached(number)
    caches, failed, end = Caches(), [], threading.Event()

    def makes():
        while not end.is_set():
            try:
                tuple(number for number in range(50))
            except SystemError as error:
                failed.append(error)

    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=makes)
    thread.start()
    try:
        for _ in range(20):
            caches.look()
    finally:
        sys.setswitchinterval(usual_s)
        end.set()
        thread.join()
    assert not failed
    assert any(note["function"].endswith("cached") for note in caches.document())


@pytest.mark.parametrize(
    "file",
    ["_dynamo/convert_frame.py", "_inductor/output_code.py", "_functorch/_aot_autograd/f.py"],
)
def test_a_thread_in_compiled_code_is_waited_for(tmp_path, file):
    """Its ranges began in the recording that has ended; torch's compiler is known by its files."""
    calls = {}
    path = str(tmp_path / "torch" / file)
    exec(compile("def outer(inner):\n    inner()\n", path, "exec"), calls)
    at_work, free = threading.Event(), threading.Event()

    def inner():
        at_work.set()
        free.wait()

    thread = threading.Thread(target=calls["outer"], args=(inner,))
    thread.start()
    at_work.wait()
    assert in_compiled_code() == {thread.ident}
    assert not all_left_compiled_code({thread.ident}, 0.05)
    assert all_left_compiled_code({thread.ident + 1}, 0.0)
    free.set()
    thread.join()
    assert all_left_compiled_code({thread.ident})


def test_a_thread_that_was_seen_outside_of_compiled_code_may_be_in_it_again(monkeypatch):
    """A program that calls compiled functions all the time: that is another call."""
    looks = iter([{1, 2}, {2}, {1}, {1}])
    monkeypatch.setattr(left_open, "in_compiled_code", lambda: next(looks))
    assert all_left_compiled_code({1, 2})
