"""Signals that reach ``pinchpoint run`` are meant for the program, and ends are shared.

Where signals can be waited for with their sender (Linux), they are blocked here and taken one by
one. One of a terminal (Ctrl-C, Ctrl-Z, another size) has reached the program already, as it shares
our process group; one of the program itself is not sent back; every other one is passed on. Where
they cannot, handlers pass them on, and Ctrl-C is left to the terminal.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from pinchpoint.inside.ending import ends_with_us

# Not passed on: what cannot be caught, what tells of our own faults, limits, children and pipes,
# and what the kernel sends to whoever of us reads from a terminal in the background.
_OWN = (
    *("SIGKILL", "SIGSTOP", "SIGCHLD", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP"),
    *("SIGSYS", "SIGPIPE", "SIGTTIN", "SIGTTOU", "SIGXCPU", "SIGXFSZ"),
)
_ENDING = ("SIGTERM", "SIGHUP")  # what batch systems, containers and closed terminals send
_BY_NAME = {each.name: each for each in signal.Signals}
PASSED_ON = frozenset(signal.valid_signals()) - {_BY_NAME[n] for n in _OWN if n in _BY_NAME}
_SI_KERNEL = 0x80  # asm-generic/siginfo.h: sent by the kernel, as a terminal does
_LOOK_EVERY_S = 1.0  # should a library's thread have taken the news that the program ended
_CAN_WAIT = hasattr(signal, "sigtimedwait") and sys.platform == "linux"


@contextmanager
def held_back() -> Iterator[None]:
    """In this block, and in threads that start in it, signals wait for ``run_to_its_end``."""
    if not _CAN_WAIT:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _waited_for())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def put_off() -> Iterator[None]:
    """In this block, what would end this process without a word waits, but for Ctrl-C.

    By handlers, which the programs that are started meanwhile do not inherit.
    """
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    usual = [_BY_NAME[name] for name in _ENDING if name in _BY_NAME]
    before = {n: signal.signal(n, note) for n in usual if signal.getsignal(n) is signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in came[:1]:
            os.kill(os.getpid(), each)


def start(command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """The program, with the signals that it would have without us. Raises OSError.

    On Linux it gets SIGTERM if this process is killed: it may end in order, and a recording that is
    being made is finished.
    """
    if not _CAN_WAIT:
        return subprocess.Popen(list(command), env=environment)
    with _let_through():
        pass  # what came before there was a program is ours
    return subprocess.Popen(list(command), env=environment, preexec_fn=_prepared())


def run_to_its_end(process: subprocess.Popen[bytes]) -> int:
    """Wait for the program, pass signals on; its code as Popen gives it."""
    if not _CAN_WAIT:
        with _handlers_for(process):
            return process.wait()
    while process.poll() is None:
        came = signal.sigtimedwait(_waited_for(), _LOOK_EVERY_S)
        if came is None or came.si_signo == signal.SIGCHLD:
            continue
        if came.si_code != _SI_KERNEL and came.si_pid != process.pid:
            process.send_signal(came.si_signo)
        if came.si_signo == signal.SIGTSTP:
            _stop_as_well()
    return process.returncode


def _waited_for() -> frozenset[int]:
    return PASSED_ON | {signal.SIGCHLD}


@contextmanager
def _let_through() -> Iterator[None]:
    held = signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _stop_as_well() -> None:
    """Stop as Ctrl-Z does, until somebody lets us go on: the signal for that is passed on then."""
    os.kill(os.getpid(), signal.SIGTSTP)
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepared() -> Callable[[], None]:
    """What the program's process does before it becomes the program."""
    bound = ends_with_us()
    held = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    theirs = held - _waited_for()

    def prepare() -> None:
        bound()
        signal.pthread_sigmask(signal.SIG_SETMASK, theirs)

    return prepare


@contextmanager
def _handlers_for(process: subprocess.Popen[bytes]) -> Iterator[None]:
    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {}
    for number in PASSED_ON - {signal.SIGINT}:
        with suppress(OSError, ValueError):  # one that this system keeps for itself
            before[number] = signal.signal(number, pass_on)
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
