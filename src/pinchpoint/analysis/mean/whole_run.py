"""Where the time of a whole run goes, by looks at its main thread.

A look finds a thread at one place. What it did there is told by three measured things: its time on
a core since the look before, whether somebody held the interpreter's lock when the look was due,
and the function of the kernel in which it slept. Shares are of time; how sure they are follows from
the number of looks (Wilson, JASA 22, 1927).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from math import sqrt

from pinchpoint.analysis.host.frames import Owner, PythonFrame, frame_of, in_numeric_package
from pinchpoint.analysis.mean.rare_steps import called, own_frame
from pinchpoint.frozen import dataclass
from pinchpoint.trace import RunSamples, Trace, once_per_trace
from pinchpoint.trace.run_samples import SampledThread, Spent

NORMAL_95 = 1.96  # deviates of a normal distribution
# Of the time at a place after which the lock was held. A call that gives the lock up has none but
# by accident; in bytecode it is all, less where the looking thread itself came late.
HELD_RATIO = 0.25
# Where the looking thread waits for its own core for longer than a switch interval, at each look,
# what is left of its lateness is uncertain: then most of it has to be.
BUSY_HELD_RATIO = 0.45
SWITCH_INTERVAL_NS = 5_000_000  # of the interpreter
ONE_CALL_RATIO = 0.5  # of the time at a place: then it is not spread over lines of Python
MOSTLY_RATIO = 0.7  # of the time at a place, at one call: then the place is that call
NS_PER_US = 1000  # looks are counted in microseconds


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


@dataclass(frozen=True)
class Share:
    """A part of the time of a thread, and between what it lies with 95 % confidence."""

    ns: int
    of_ns: int
    range_ns: tuple[int, int]
    looks: int

    @property
    def ratio(self) -> float:
        """Of all that was looked at."""
        return self.ns / max(self.of_ns, 1)

    @property
    def least_ratio(self) -> float:
        """What is sure."""
        return self.range_ns[0] / max(self.of_ns, 1)


@dataclass(frozen=True)
class RunPlace:
    """A function of the program with all that it called, and what the thread did there."""

    at: PythonFrame | None  # the line with most of it; None: no code of the program was running
    share: Share
    ways: Mapping[Way, int]  # nanoseconds
    inside: str | None  # the library's function that most of it is in: ``numpy.linalg.eigh``
    inside_ratio: float
    call: str  # what most of it is at in the program's own line: ``pattern.match()``; empty: none
    call_ratio: float
    lines: int  # of the function that were seen

    @property
    def main_way(self) -> Way:
        """What it mostly does, on a core or waiting for anything but that."""
        return max(self.ways, key=lambda way: (way is not Way.NO_CORE, self.ways[way]))

    @property
    def doing_ns(self) -> int:
        """Its time without that in which it had no core."""
        return sum(self.ways.values()) - self.ways.get(Way.NO_CORE, 0)


@dataclass(frozen=True)
class RunAccount:
    """Everything that a main thread did, from the start of the program to its end."""

    total_ns: int
    looks: int
    ways: Mapping[Way, int]  # nanoseconds; they add up to ``total_ns``
    places: tuple[RunPlace, ...]  # most time first; imports left out


@dataclass(frozen=True)
class Cores:
    """What threads lacked of them."""

    queued_ns: int  # that the threads that are looked at were ready to run and had none
    held_ratio: float = HELD_RATIO  # of the time at a place, from which on it is the lock's

    @classmethod
    def of(cls, samples: RunSamples, threads: Sequence[SampledThread]) -> "Cores":
        """Of some threads of a run."""
        each_ns = (samples.looker_queued_ns or 0) / max(samples.looks, 1)
        held = BUSY_HELD_RATIO if each_ns > SWITCH_INTERVAL_NS else HELD_RATIO
        return cls(sum(thread.queued_ns or 0 for thread in threads), held)


def only_samples(trace: Trace) -> bool:
    """Whether nothing of the program was recorded but looks at its threads."""
    tables = (trace.host_ops, trace.device_ops, trace.api_calls, trace.allocations, trace.snapshot)
    sampled = trace.run is not None and trace.run.samples is not None
    return sampled and all(table is None for table in tables)


@once_per_trace
def uses_framework(trace: Trace) -> bool:
    """Whether a thread of the run was seen at work inside torch or jax."""
    samples = trace.run.samples if trace.run else None
    threads = () if samples is None else samples.threads
    works = (one for t in threads for one in t.spent if not imports(one.frames))
    return any(frame.startswith(_FRAMEWORKS) for one in works for frame in one.frames)


_FRAMEWORKS = ("torch/", "jax/", "jaxlib/", "cupy/")


@once_per_trace
def run_account(trace: Trace) -> RunAccount | None:
    """None where the run was not looked at, or by a version that did not measure time."""
    samples = trace.run.samples if trace.run else None
    spent = [] if samples is None else main_spent(samples)
    if samples is None or not spent:
        return None
    course = trace.run.course if trace.run else None
    seen_ns = NS_PER_US * sum(one.us for one in spent)
    total_ns = max(course.total_ns if course else 0, seen_ns)
    cores = Cores.of(samples, _main_threads(samples))
    ways = Counter(_ways_of(spent, cores))
    garbage = min(samples.garbage.ns if samples.garbage else 0, ways[Way.INTERPRETER])
    ways[Way.INTERPRETER] -= garbage
    ways[Way.GARBAGE] += garbage
    ways[Way.UNSEEN] = total_ns - sum(ways.values())
    return RunAccount(
        total_ns,
        sum(one.looks for one in spent),
        {way: ns for way, ns in ways.most_common() if ns > 0},
        places_of(spent, cores, seen_ns),
    )


def _main_threads(samples: RunSamples) -> list[SampledThread]:
    found = [t for t in samples.threads if t.main][:1]
    return [*([] if samples.before is None else [samples.before]), *found]


def main_spent(samples: RunSamples) -> list[Spent]:
    """All that was seen of the main thread, before its steps and since."""
    return [one for thread in _main_threads(samples) for one in thread.spent]


def places_of(spent: Sequence[Spent], cores: Cores, of_ns: int) -> tuple[RunPlace, ...]:
    """The program's functions by their time; what they import is no work of theirs."""
    work = [one for one in spent if not imports(one.frames)]
    scarce = _scarce(work, cores.queued_ns)
    alike: dict[tuple[str, str] | None, list[Spent]] = {}
    for one in work:
        alike.setdefault(_function(one), []).append(one)
    found = [
        _place(group, _ways(group, scarce, cores.held_ratio), of_ns, spent)
        for group in alike.values()
    ]
    return tuple(sorted(found, key=lambda place: -place.share.ns))


def _ways_of(spent: Sequence[Spent], cores: Cores) -> Mapping[Way, int]:
    ways = Counter({Way.IMPORT: NS_PER_US * sum(o.us for o in spent if imports(o.frames))})
    for place in places_of(spent, cores, 1):
        ways.update(place.ways)
    return ways


def _place(
    group: list[Spent], ways: Mapping[Way, int], of_ns: int, every: Sequence[Spent]
) -> RunPlace:
    frames: Counter[PythonFrame] = Counter()
    inside: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for one in group:
        if (frame := own_frame(one.frames)) is not None:
            frames[frame] += one.us
        if (name := called(one.frames)) is not None:
            inside[name] += one.us
        if one.doing and _is_own(one.frames[:1]):
            calls[one.doing] += one.us
    us = sum(one.us for one in group)
    name, name_us = next(iter(inside.most_common(1)), (None, 0))
    call, call_us = next(iter(calls.most_common(1)), ("", 0))
    return RunPlace(
        next(iter(frames.most_common(1)), (None, 0))[0],
        share(us, every, of_ns, sum(one.looks for one in group)),
        ways,
        name,
        name_us / max(us, 1),
        call,
        call_us / max(us, 1),
        len(frames),
    )


def _ways(group: list[Spent], scarce: float, held_ratio: float) -> Mapping[Way, int]:
    """What a thread does at a place; whether the lock is held there is told by all looks at it."""
    out: Counter[Way] = Counter()
    awake = on_core = held = 0
    for one in group:
        asleep = _asleep_us(one)
        out[wait_of(one)] += asleep * NS_PER_US
        awake += one.us - asleep
        on_core += min(one.on_core_us, one.us - asleep)
        held += one.held_us
    lacking = round(scarce * (awake - on_core))
    interprets = held >= held_ratio * max(awake, 1) and not _computes(group)
    way = Way.INTERPRETER if interprets else Way.OUTSIDE
    out[way] += (awake - lacking) * NS_PER_US
    out[Way.NO_CORE] += lacking * NS_PER_US
    return {way: ns for way, ns in out.items() if ns > 0}


def _computes(group: list[Spent]) -> bool:
    """Whether most of it is one call of a numeric library: some keep the lock meanwhile."""
    spots: Counter[tuple[str, str]] = Counter()
    for one in group:
        spots[(one.frames[0] if one.frames else "", one.doing)] += one.us
    (name, doing), us = spots.most_common(1)[0]
    frame = frame_of(name)
    numeric = frame is not None and in_numeric_package(frame.file)
    return numeric and bool(doing) and us >= ONE_CALL_RATIO * sum(spots.values())


def _scarce(work: Sequence[Spent], queued_ns: int) -> float:
    """Of the time in which a thread neither slept nor ran, what it was ready to run in."""
    off = sum(max(one.us - _asleep_us(one) - one.on_core_us, 0) for one in work)
    return min(queued_ns / max(off * NS_PER_US, 1), 1.0)


def _asleep_us(one: Spent) -> int:
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


def share(us: int, every: Sequence[Spent], of_ns: int, looks: int) -> Share:
    """Looks far apart weigh more than others, so that fewer of equal weight say as much."""
    whole = max(sum(one.us for one in every), 1)
    squares = sum(one.us * one.us / max(one.looks, 1) for one in every)
    low, high = wilson(us / whole, whole * whole / max(squares, 1.0))
    between = round(low * of_ns), round(high * of_ns)
    return Share(round(us / whole * of_ns), of_ns, between, looks)


def share_of_way(place: RunPlace, way: Way) -> Share:
    """The part of a place's time that passes in one way, as sure as the looks at it make it."""
    ns, whole = place.ways.get(way, 0), place.share
    if not ns or not whole.ns:
        return Share(0, whole.of_ns, (0, 0), 0)
    part = ns / max(sum(place.ways.values()), 1)
    looks = round(whole.looks * part)
    low, high = wilson(ns / max(whole.of_ns, 1), whole.looks / max(whole.ratio, 1e-9))
    return Share(ns, whole.of_ns, (round(low * whole.of_ns), round(high * whole.of_ns)), looks)


def wilson(ratio: float, count: float) -> tuple[float, float]:
    """Between what a share of so many looks lies, with 95 % confidence."""
    if count <= 0:
        return 0.0, 1.0
    z2 = NORMAL_95 * NORMAL_95
    middle = (ratio + z2 / (2 * count)) / (1 + z2 / count)
    root = sqrt(max(ratio * (1 - ratio), 0.0) / count + z2 / (4 * count * count))
    half = NORMAL_95 * root / (1 + z2 / count)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _function(one: Spent) -> tuple[str, str] | None:
    frame = own_frame(one.frames)
    return None if frame is None else (frame.file, frame.function)


def _is_own(frames: Iterable[str]) -> bool:
    return any((f := frame_of(name)) is not None and f.owner is Owner.USER for name in frames)


_IMPORTING = (": _find_and_load", ": exec_module", ": _gcd_import")  # of importlib


def imports(frames: Sequence[str]) -> bool:
    """Whether the innermost work is an import, and no function of the program that it runs."""
    for name in frames:
        if name.endswith(_IMPORTING):
            return True
        if _is_own((name,)) and not name.endswith(": <module>"):
            return False
    return False


# What a thread waits for: by the kernel's function, and by Python's own modules on the stack where
# that one is used for many things (poll, a pipe).
_BY_WORD = (
    (Way.SLEEP, ("nanosleep",)),
    (Way.PROCESS, ("do_wait", "wait4", "waitid")),
    (
        Way.NETWORK,
        ("skb", "tcp", "inet", "unix_stream", "sk_wait", "accept", "sock_", "wait_woken"),
    ),
    (Way.LOCK, ("futex",)),
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
        if any(m in file and not _is_own((f"{file}(1): f",)) for file in files for m in modules):
            return way
    if known is not None:
        return known
    if "pipe" in word:
        return Way.PROCESS
    return Way.FILES if word.startswith("D") else Way.WAIT
