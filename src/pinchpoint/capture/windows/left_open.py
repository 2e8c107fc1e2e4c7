"""What is still open in the program when a recording ends, and must not end inside the next one.

torch keeps for each range or operator that begins in a recording the address of its event. It is
written to when the range ends while any recording is open, and an earlier recording has freed it by
then: the write lands in whatever the program has there now. With torch 2.13 every range that began
in one recording and ended in the next one did so, and programs died of it later, anywhere (a range
around ``next()`` of a loader whose batch takes longer than two short recordings are apart).
"""

import gc
import os
import sys
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from pinchpoint.capture.samples.stacks import Place, frames_of_threads, stack_of

MOVES_ON_WITHIN_S = 2.0  # as long as a window of time takes by default
PARKED_RATIO = 0.01  # of the time on a core: one that wakes ten times a second needs less
LOOK_AGAIN_S = 0.002  # most operators of a program are over by then
_ended: list[Any] = []  # ranges of recordings that have ended: for ever, since to free one ends it


def let_ranges_go() -> None:
    """Call when a recording has ended, before another begins: nothing that is open writes to it.

    Each open range gets a record that began in no recording, in place of its own.
    """
    torch = sys.modules["torch"]
    kind = torch.autograd.profiler.record_function
    begin = getattr(torch.ops.profiler, "_record_function_enter_new", None)
    if begin is None:  # torch before 1.11
        return
    # Not gc.get_objects(): what it holds on to may be half made by another thread, which then fails
    for one in gc.get_referrers(kind):
        if type(one) is kind and getattr(one, "record", None) is not None:
            _ended.append(one.record)
            one.record = begin(one.name, one.args)


Places = dict[int, tuple[int, int]]  # by thread: frame and instruction


def places() -> Places:
    """At which instruction each thread is that may be in an operator; the one that asks left out.

    Who waits in a function of the standard library, for a lock or a socket, is in none; nor are the
    threads that look at the program.
    """
    frames: Any = frames_of_threads()
    frames.pop(threading.get_ident(), None)
    library = str(Path(threading.__file__).parent)
    own = str(Path(__file__).parents[2])
    return {
        thread: (id(frame), frame.f_lasti)
        for thread, frame in frames.items()
        if not _below(frame.f_code.co_filename, library)
        and not frame.f_code.co_filename.startswith(own)
    }


def all_moved_on(since: Places, within_s: float = MOVES_ON_WITHIN_S) -> bool:
    """Wait until no thread is where it was, so that no operator from then is under way.

    Who stays there and needs no core sleeps, or waits for a request: an operator works.
    """
    left, until, before_ns = dict(since), time.monotonic() + within_s, _on_core_ns(since)
    while True:
        now = places()
        left = {thread: at for thread, at in left.items() if now.get(thread) == at}
        if not left:
            return True
        if time.monotonic() > until:
            after_ns, least_ns = _on_core_ns(left), PARKED_RATIO * within_s * 1e9
            return all(
                thread in after_ns and after_ns[thread] - before_ns.get(thread, 0) < least_ns
                for thread in left
            )
        time.sleep(LOOK_AGAIN_S)


def in_compiled_code() -> set[int]:
    """Threads that compile, or run what torch compiled; the one that asks left out.

    Their ranges are objects of C++ which nobody can find and let go, and may be open for a minute:
    where a compiled function is first called, kernels are built and its backward pass is compiled.
    """
    others = set(frames_of_threads()) - {threading.get_ident()}
    return {thread for thread in others if _any_of(stack_of(thread), _COMPILED)}


def all_left_compiled_code(since: Collection[int], within_s: float = MOVES_ON_WITHIN_S) -> bool:
    """Wait until each of these threads was seen outside of it; one that never is may be there
    still, in the same call."""
    left, until = set(since), time.monotonic() + within_s
    while left := left & in_compiled_code():
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_AGAIN_S)
    return True


# Who opens such ranges in torch 2.11 and 2.13 (``_RecordFunctionFast``), and who calls these.
_COMPILED = tuple(
    f"/torch/{part}".replace("/", os.sep)
    for part in (
        "_dynamo/convert_frame.py",
        "_dynamo/utils.py",
        "_functorch/_aot_autograd/",
        "_inductor/",
        "fx/",
    )
)


def calls_back() -> bool:
    """Whether torch has called the function that this thread is in: an operator, a node of the
    backward pass or a collective is open around it, which no recording may end inside of."""
    return _any_of(stack_of(threading.get_ident()), (*_COMPILED, *_CALLS_BACK))


# A function of autograd with its own passes, hooks of parameters and gradients, operators that are
# written in Python.
_CALLS_BACK = tuple(
    f"/torch/{part}".replace("/", os.sep)
    for part in ("autograd/", "distributed/", "library.py", "_library/", "_ops.py", "_dispatch/")
)


def _any_of(places: list[Place], parts: tuple[str, ...]) -> bool:
    return any(part in code.co_filename for code, _ in places for part in parts)


def _on_core_ns(threads: Collection[int]) -> dict[int, int]:
    """Time on a core of these threads so far; without those of which the kernel does not tell."""
    found = {}
    for thread in threading.enumerate():
        if thread.ident is not None and thread.ident in threads and thread.native_id:
            with suppress(OSError, ValueError, IndexError):
                said = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text("ascii")
                found[thread.ident] = int(said.split()[0])
    return found


def _below(file: str, library: str) -> bool:
    return file.startswith((library, "<frozen ")) and "-packages" not in file
