"""Several threads look at all threads while garbage is collected with callbacks in Python."""

import gc
import subprocess
import sys
import threading
import weakref

import pytest

from pinchpoint.capture.samples.stacks import frames_of_threads

PROGRAM = """
import faulthandler, gc, os, sys, threading, time
from pinchpoint.capture.samples.stacks import frames_of_threads, stack_of
sys.setswitchinterval(1e-5)
gc.set_threshold(5)
gc.callbacks.append(lambda phase, info: sum(range(50)))
faulthandler.dump_traceback_later(60, exit=True)
main = threading.main_thread().ident
def looks(ask):
    while True:
        ask()
for ask in (frames_of_threads, frames_of_threads, lambda: stack_of(main)):
    threading.Thread(target=looks, args=(ask,), daemon=True).start()
def deep(n):
    return deep(n - 1) if n else [[] for _ in range(30)]
until = time.monotonic() + 3
while time.monotonic() < until:
    deep(30)
print("lived", gc.isenabled(), flush=True)
os._exit(0)
"""


def test_no_thread_waits_for_ever():
    """With ``sys._current_frames`` alone it does so within seconds under CPython 3.11.7."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.stdout == "lived True\n", done.stderr


@pytest.mark.parametrize("collects", [True, False])
def test_collections_stay_as_they_were(collects):
    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        assert threading.get_ident() in frames_of_threads()
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()


def test_what_a_thread_had_in_hand_is_kept_by_no_look():
    """Tensors of a program would stay on its device until garbage is collected."""

    class Held:
        pass

    there, may_go, held = threading.Event(), threading.Event(), []

    def works():
        mine = Held()
        held.append(weakref.ref(mine))
        there.set()
        may_go.wait(60)

    before = gc.isenabled()
    gc.disable()
    try:
        thread = threading.Thread(target=works)
        thread.start()
        there.wait(60)
        assert thread.ident in tuple(frames_of_threads())
        may_go.set()
        thread.join()
        assert held[0]() is None
    finally:
        (gc.enable if before else gc.disable)()
