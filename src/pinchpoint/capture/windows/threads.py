"""What may be done in which thread of the program, and when."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import CodeType
from typing import Any

from pinchpoint.capture.samples.stacks import frames_of_threads, stack_of

IN_MAIN_WITHIN_S = 5.0  # a thread that waits somewhere for longer is left alone
RETURNS_WITHIN_S = 0.01  # what is called there, once it is done
BEGINS_WITHIN_S = 2.0  # as long as a window of time takes by default
LOOK_AGAIN_S = 0.002  # between two looks for that
UNINTERRUPTED_S = 5.0  # longer than a profiler takes to begin; nobody takes the lock by force then


class _Captures:
    """How many graphs are being captured now."""

    count = 0
    lock = threading.Lock()

    @classmethod
    def changed(cls, by: int) -> None:
        """A capture begins or ends."""
        with cls.lock:
            cls.count += by


def watch_captures(graphs: Any) -> None:
    """Count the captures of ``torch.cuda.graphs``."""
    enter, leave = graphs.graph.__enter__, graphs.graph.__exit__

    def __enter__(context: Any) -> Any:  # noqa: N807
        _Captures.changed(+1)
        try:
            return enter(context)
        except BaseException:
            _Captures.changed(-1)
            raise

    def __exit__(context: Any, *raised: Any) -> Any:  # noqa: N807
        try:
            return leave(context, *raised)
        finally:
            _Captures.changed(-1)

    graphs.graph.__enter__, graphs.graph.__exit__ = __enter__, __exit__


def captures_under_way() -> bool:
    """Whether any thread captures a graph by ``torch.cuda.graph``."""
    return bool(_Captures.count)


def graph_is_captured() -> bool:
    """Whether the present stream records a CUDA graph, in which nothing may be asked of it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


_kept: list[Any] = []  # whoever calls one late must find it


def in_main_thread(act: Callable[[], None], within_s: float = IN_MAIN_WITHIN_S) -> None:
    """Call ``act`` in the main thread, between two of its instructions, and wait for that.

    It is not called if the main thread stays in one call for ``within_s``.
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
    done.wait(within_s)
    if not taken.is_set():
        taken.set()
        return
    done.wait()
    for kind in raised:
        time.sleep(RETURNS_WITHIN_S)
        main = c_ulong(threading.main_thread().ident or 0)
        pythonapi.PyThreadState_SetAsyncExc(main, py_object(kind))


# A thread that stays in one call for longer than backward passes take is as likely to wait in it.
HELD_WITHIN_S = 1.0
HELD_S = 10.0  # at most: a lock that the main thread holds may be what it is held for
LOOKS_S = 0.01  # between two looks whether it is


def at_rest(act: Callable[[], None]) -> None:
    """Call ``act`` in the main thread between two of its instructions, or here if it stays in one.

    A recording of all threads is prepared, begun and ended so, as one of the program's own would
    be: while no operator of the main thread is under way, and in the thread that launches. From
    another one, sorting loops on an H200 (torch 2.11) died with ``munmap_chunk(): invalid pointer``
    in two of five runs while the main thread went on, and with ``free(): invalid pointer`` in two
    of three of another one where it only waited, for the beginning and the end. Raises what
    ``act`` raises.
    """
    failed: list[Exception] = []
    called = threading.Event()

    def once() -> None:
        called.set()
        try:
            act()
        except Exception as error:  # in the main thread it would be the program's
            failed.append(error)

    if threading.current_thread() is not threading.main_thread():
        in_main_thread(once, HELD_WITHIN_S)
    if not called.is_set():
        once()
    for error in failed:
        raise error


@contextmanager
def main_thread_held(
    first: Callable[[], None] = lambda: None, within_s: float = IN_MAIN_WITHIN_S
) -> Iterator[bool]:
    """Meanwhile the main thread, once it has called ``first``, waits between two instructions;
    whether it does. Called there itself, it is where it is."""
    if threading.current_thread() is threading.main_thread():
        first()
        yield True
        return
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with suppress(Exception):  # it would be raised in the program
            first()
        held.set()
        done.wait(HELD_S)

    asks = threading.Thread(
        target=in_main_thread, args=(hold, within_s), name="pinchpoint-holds", daemon=True
    )
    asks.start()
    try:
        while not held.wait(LOOKS_S) and asks.is_alive():
            pass
        yield held.is_set()
    finally:
        done.set()
        asks.join()


TURN_S = 0.05  # short beside what is waited for, and rare


def join_in_turns(thread: threading.Thread, within_s: float) -> None:
    """Wait for a thread that may need this one: between two turns it has its way."""
    until = time.monotonic() + within_s
    while thread.is_alive() and time.monotonic() < until:
        thread.join(TURN_S)


def begin_with_stacks(
    begin: Callable[[], None], within_s: float = BEGINS_WITHIN_S, *, in_main: bool = True
) -> bool:
    """Call ``begin``, which starts a profiler with stacks, where it cannot hang; whether it did.

    The profiler takes up the state of each thread, to write down which functions run already, and
    copies the parameters of the modules and optimizers among them. In torch 2.11.0 with Python 3.12
    such a copy asks for the interpreter's lock, which the profiler holds under the name of another
    thread: it waits for itself, and the whole program with it, for ever (about one in six of such
    recordings of an inference loop on an H200). What the beginning thread itself is in does no
    harm, so that it begins in the main thread, if that is allowed, comes out of what it calls in
    time, and no other is in a module.
    """
    begun: list[Exception | None] = []

    def begin_if_safe() -> None:
        if not _elsewhere_in_modules():
            try:
                begin()
                begun.append(None)
            except Exception as error:  # in the main thread it would be the program's
                begun.append(error)

    until = time.monotonic() + within_s
    main = threading.main_thread().ident
    in_main = in_main and threading.get_ident() != main
    while True:
        if in_main and _elsewhere_in_modules() <= {main}:
            in_main_thread(lambda: uninterrupted(begin_if_safe), HELD_WITHIN_S)
        if not begun:
            uninterrupted(begin_if_safe)
        if begun or time.monotonic() > until:
            break
        time.sleep(LOOK_AGAIN_S)
    for error in begun:
        if error is not None:
            raise error
    return bool(begun)


def uninterrupted(act: Callable[[], None]) -> None:
    """Call ``act``, during which other threads run only where it gives up the lock by itself."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(UNINTERRUPTED_S)
    try:
        act()
    finally:
        sys.setswitchinterval(usual_s)


def _elsewhere_in_modules() -> set[int | None]:
    """The other threads that are in a call of a module, or in a step of an optimizer."""
    codes = _module_codes()
    own = threading.get_ident()
    return {
        thread
        for thread in tuple(frames_of_threads())
        if thread != own and any(code in codes for code, _ in stack_of(thread))
    }


def _module_codes() -> set[CodeType]:
    """Code whose ``self`` the profiler looks into."""
    kind = sys.modules["torch.nn"].Module
    optimizer = sys.modules["torch.optim"].Optimizer
    functions = (kind.__call__, kind._call_impl, getattr(optimizer, "_optimizer_step_code", None))
    return {code for f in functions if isinstance(code := getattr(f, "__code__", None), CodeType)}
