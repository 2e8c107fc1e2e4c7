"""What a thread does with its time at one stack: which kind of work, or what it waits for.

A wait is told by the function of the kernel in which the thread slept, and by the modules of
Python on its stack.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum

from pinchpoint.analysis.host.frames import Owner, frame_of
from pinchpoint.trace.run_samples import Spent


class Way(Enum):
    """What a thread does with its time; the value is the id of a part of the run."""

    IMPORT = "run-imports"
    INTERPRETER = "run-interpreter"
    OUTSIDE = "run-outside"
    GARBAGE = "run-garbage"
    NO_CORE = "run-no-core"
    SLEEP = "run-sleep"
    LOCK = "run-lock"
    PROCESS = "run-process"
    NETWORK = "run-network"
    FILES = "run-files"
    WAIT = "run-wait"
    UNSEEN = "run-unseen"

    @property
    def label(self) -> str:
        """For people."""
        return _LABELS[self]

    @property
    def waits(self) -> bool:
        """Whether it waits for something else to happen."""
        return self in WAITS


_LABELS = {
    Way.IMPORT: "importing modules",
    Way.INTERPRETER: "Python, and calls that hold its lock",
    Way.OUTSIDE: "in libraries that give the lock up (NumPy)",
    Way.GARBAGE: "collecting garbage",
    Way.NO_CORE: "ready to run, without a core",
    Way.SLEEP: "sleeping",
    Way.LOCK: "waiting for another thread",
    Way.PROCESS: "waiting for another process",
    Way.NETWORK: "waiting for the network",
    Way.FILES: "waiting for files",
    Way.WAIT: "waiting, for what is not told",
    Way.UNSEEN: "not looked at: start, end, recording",
}
WAITS = (Way.SLEEP, Way.LOCK, Way.PROCESS, Way.NETWORK, Way.FILES, Way.WAIT)


def is_own(frames: Iterable[str]) -> bool:
    """Whether one of these frames is of the program itself."""
    return any((f := frame_of(name)) is not None and f.owner is Owner.USER for name in frames)


_IMPORTING = (": _find_and_load", ": exec_module", ": _gcd_import")  # of importlib


def imports(frames: Sequence[str]) -> bool:
    """Whether the innermost work is an import, and no function of the program that it runs."""
    for name in frames:
        if name.endswith(_IMPORTING):
            return True
        if is_own((name,)) and not name.endswith(": <module>"):
            return False
    return False


# What a thread waits for: by the kernel's function, and by Python's own modules on the stack where
# that one is used for many things (poll, a pipe).
_BY_WORD = (
    (Way.SLEEP, ("nanosleep",)),
    (Way.LOCK, ("futex",)),  # before those for processes: it is ``futex_do_wait`` in newer kernels
    (Way.PROCESS, ("do_wait", "wait4", "waitid")),
    (
        Way.NETWORK,
        ("skb", "tcp", "inet", "unix_stream", "sk_wait", "accept", "sock_", "wait_woken"),
    ),
    (Way.FILES, ("io_schedule", "folio", "page", "jbd2", "ext4", "xfs", "btrfs", "nfs", "fuse")),
)
_BY_MODULE = (
    (Way.PROCESS, ("subprocess.py", "multiprocessing/", "concurrent/futures/process.py")),
    (Way.NETWORK, ("socket.py", "ssl.py", "http/client.py", "urllib", "requests", "asyncio/")),
    (Way.LOCK, ("threading.py", "queue.py", "concurrent/futures/")),
)


def wait_of(one: Spent) -> Way:
    """What a thread waits for at a stack."""
    words = Counter({word: us for word, us in one.waits if word and not word.startswith("R")})
    word = next(iter(words.most_common(1)), ("", 0))[0]
    known = next((way for way, parts in _BY_WORD if any(p in word for p in parts)), None)
    if known in (Way.SLEEP, Way.NETWORK):
        return known
    files = [name.partition("(")[0] for name in one.frames]
    for way, modules in _BY_MODULE:
        if any(m in file and not is_own((f"{file}(1): f",)) for file in files for m in modules):
            return way
    if known is not None:
        return known
    if "pipe" in word:
        return Way.PROCESS
    return Way.FILES if word.startswith("D") else Way.WAIT


def asleep_us(one: Spent) -> int:
    """Without the kernel's word a thread that was on no core may have lacked one.

    Not in a function that waits: while others hold the lock the kernel is not asked.
    """
    if _in_a_wait(one):
        return max(one.us - one.on_core_us, 0)
    return _told_us(one)


def _told_us(one: Spent) -> int:
    return min(sum(us for word, us in one.waits if word and not word.startswith("R")), one.us)


# Modules of Python's own that a thread without anything to do is found in.
_WAITING = (
    "threading.py", "queue.py", "selectors.py", "socket.py", "multiprocessing/", "concurrent/",
)  # fmt: skip
_BUSY = ("dump", "load", "send_bytes", "_send")  # there: packing and sending are work


def _in_a_wait(one: Spent) -> bool:
    frame = frame_of(one.frames[0]) if one.frames else None
    if frame is None or frame.owner is not Owner.FRAMEWORK:
        return False
    return any(part in frame.file for part in _WAITING) and not frame.function.startswith(_BUSY)


def waits_for_work(one: Spent) -> bool:
    """Whether a thread waits inside Python's own library, or on a queue of the program's."""
    if not one.frames or _in_a_wait(one):
        return True
    return 2 * _told_us(one) > one.us and wait_of(one) in (Way.LOCK, Way.PROCESS)
