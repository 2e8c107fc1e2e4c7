"""Steps that stopped: after a warm-up whose marks do not come again, or in a pause."""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from pinchpoint.capture.process.step_clock import StepClock, median
from pinchpoint.capture.windows.all_threads import captures_under_way

STALLED_S = 10.0  # warm-up before a loop that no hook sees, or a pause
WARM_UP_S = 2.0  # the same where there were few steps
WINDOW_STALLED_S = 0.25  # with a first window open: what comes now may be a hundred thousand events
WARM_UP_STEPS = 10  # at most, of calls of a model
STALLED_STEPS = 20  # usual steps, for programs whose steps take long
UNKNOWN_S = 30.0  # for a window that opened before it was known how long a step takes
IN_MAIN_WITHIN_S = 5.0  # a thread that waits somewhere for longer is left alone
RETURNS_WITHIN_S = 0.01  # what is called there, once it is done


def stopped(clock: StepClock, least_s: float = STALLED_S) -> bool:
    """Whether no step has ended for far longer than steps take."""
    times = clock.interval_ns
    usual_s = median(times) / 1e9 if len(times) else 0.0
    return clock.since_last_s > max(least_s, STALLED_STEPS * usual_s)


def graph_is_captured() -> bool:
    """Whether the present stream records a CUDA graph, in which nothing may be asked of it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


_kept: list[Any] = []  # whoever calls one late must find it


def in_main_thread(act: Callable[[], None]) -> None:
    """Call ``act`` in the main thread, between two of its instructions, and wait for that.

    A profile has to end in the thread that began it. What a handler of the program raises
    meanwhile, as Ctrl-C does, is raised in the program a little later.
    """
    # Imported here since it is rarely needed.
    from ctypes import CFUNCTYPE, c_int, c_ulong, c_void_p, py_object, pythonapi

    taken, done, raised = threading.Event(), threading.Event(), []
    compiler: Any = sys.modules.get("torch._dynamo")
    # Else torch.compile would look at our functions, where it is this that they interrupt.
    quiet = compiler.disable(act) if hasattr(compiler, "disable") else act

    def call(_: object) -> int:
        try:
            if not (taken.is_set() or graph_is_captured() or captures_under_way()):
                taken.set()
                quiet()
        except BaseException as error:  # from here it would be a SystemError to the program
            raised.append(type(error))
        done.set()
        return 0

    callback = CFUNCTYPE(c_int, c_void_p)(call)
    _kept.append(callback)
    pythonapi.Py_AddPendingCall(callback, None)
    done.wait(IN_MAIN_WITHIN_S)
    if not taken.is_set():
        taken.set()
        return
    done.wait()
    for kind in raised:
        time.sleep(RETURNS_WITHIN_S)
        main = c_ulong(threading.main_thread().ident or 0)
        pythonapi.PyThreadState_SetAsyncExc(main, py_object(kind))
