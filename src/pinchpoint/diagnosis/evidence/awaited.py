"""What the other threads do while the thread of the steps waits for them, by looks at all of them.

A lock shows as a proportion: several threads stand at one line of the program, and together they
use no more than one core, although cores are free and nobody wants the interpreter's lock. Threads
that read files share a core like that, too, but stand at a call. A thread that stands where nothing
is called, and is on no core, can only be about to enter a ``with``.

Where the one that gets on waits for an answer itself, nobody uses a core: then several threads ask
for a lock or a semaphore by name, and one at a time is past that line, in a call.

One thread alone that keeps the lock shows while the thread of the steps sleeps at such a line, and
the interpreter's lock is free: a look that is due then comes in time.
"""

from collections import Counter

from pinchpoint.analysis.host.frames import Owner, PythonFrame, frame_of
from pinchpoint.analysis.mean.stacks import own_frame
from pinchpoint.analysis.mean.ways import asleep_us, waits_for_work
from pinchpoint.analysis.mean.whole_run import HELD_RATIO, NS_PER_US
from pinchpoint.analysis.run import run_facts
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.rivals import FEWEST_LOOKS, LATE_NS, late_by_the_lock_ns
from pinchpoint.diagnosis.finding import Location
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import RunSamples, Trace, once_per_trace
from pinchpoint.trace.run_samples import SampledThread, Spent

# Threads in one function at once, of which so much of one core is used: one at a time, with a
# margin for what they do outside the lock. Less than the least, and they wait for something else.
SEVERAL_AT_ONCE, ONE_CORE, LEAST_CORE = 2.0, 1.2, 0.3
ONE_AT_ONCE = 1.15  # threads at the line that one at a time works at; looks are spread by chance
MOSTLY_RATIO = 0.5  # of the looks at a thread
_ACQUIRES = regex(r"threading\.py\(\d+\): acquire$")  # not one that waits to be told, as queues do
_SENDS_TASKS = ("multiprocessing/pool.py", ": _handle_tasks")
_SENDING = (": send", ": _send", ": _send_bytes", ": dumps")


HOLD_SHORTER = (
    "Hold the lock only where the threads touch what they share, and compute outside of it"
)


@dataclass(frozen=True)
class Turns:
    """Threads of which one at a time gets on."""

    threads: float  # that have work, at a time
    function: str
    waits: Location  # where most of them stand
    works: Location  # where the one is
    cores: float  # that they use together
    answers: str = ""  # the call in which the one waits for somebody else; empty: it computes

    def ratio_left(self, cores: float) -> float:
        """Of a wait for them, if they all got on at once on so many cores."""
        return 1 / max(self.threads if self.answers else min(self.threads, cores), 1.0)

    @property
    def fix(self) -> str:
        """What lets more of them get on."""
        if self.answers:
            return (
                "Let as many of them get on at once as there are: a larger limit for what they take"
                " turns at, or a lock that is held only where they touch what they share"
            )
        return HOLD_SHORTER


@dataclass(frozen=True)
class Sends:
    """A thread of a pool that packs and sends tasks to worker processes most of the time."""

    looks: int
    of: int


@dataclass(frozen=True)
class Kept:
    """A lock of the program that one other thread keeps while it works."""

    waits: Location  # where the thread of the steps stands
    works: Location  # where the other one mostly is meanwhile
    thread: str
    waited_ns: int  # of all that the thread of the steps was looked at
    of_ns: int
    looks: int

    def is_awaited_in(self, place: Location | None) -> bool:
        """Whether the thread of the steps stands before the lock in this function."""
        at = self.waits
        return place is not None and (place.file, place.function) == (at.file, at.function)


LEAST_KEPT_RATIO = 0.1  # of the time of the steps: host time differs by as much between two runs


@once_per_trace
def kept_lock(trace: Trace) -> Kept | None:
    """None where the thread of the steps waits for no lock of the program, or looks are too few."""
    samples = trace.run.samples if trace.run else None
    main = next((t for t in samples.threads if t.main), None) if samples else None
    if samples is None or main is None:
        return None
    asleep: Counter[PythonFrame] = Counter()
    held: Counter[PythonFrame] = Counter()
    looks: Counter[PythonFrame] = Counter()
    for one in main.spent:
        frame = frame_of(one.frames[0]) if one.frames else None
        if frame is None or frame.owner is not Owner.USER or not _enters(one.doing):
            continue
        asleep[frame] += asleep_us(one)
        held[frame] += one.held_us
        looks[frame] += one.looks
    if not asleep:
        return None
    at, slept_us = asleep.most_common(1)[0]
    of_us, works = sum(one.us for one in main.spent), _works(samples, slept_us)
    free = held[at] < HELD_RATIO * slept_us and looks[at] >= FEWEST_LOOKS
    if works is None or not free or slept_us < LEAST_KEPT_RATIO * of_us:
        return None
    thread, place = works
    waits = Location(at.file, at.line, at.function)
    return Kept(waits, place, thread, slept_us * NS_PER_US, of_us * NS_PER_US, looks[at])


def _works(samples: RunSamples, least_us: int) -> tuple[str, Location] | None:
    """The other thread that is at work for longest, and the function of the program that it is in;
    None where none works for as long as somebody waits."""
    longest: Counter[tuple[str, PythonFrame]] = Counter()
    for thread in samples.threads:
        for one in () if thread.main else thread.spent:
            frame = own_frame(one.frames)
            if frame is not None and frame.owner is Owner.USER and not waits_for_work(one):
                longest[thread.name, frame] += one.us
    if not longest:
        return None
    (name, frame), us = longest.most_common(1)[0]
    return (name, Location(frame.file, frame.line, frame.function)) if us >= least_us / 2 else None


def _enters(doing: str) -> bool:
    """Whether a frame that sleeps can only be about to enter a ``with``, or asks for a lock."""
    return not doing or doing.endswith("acquire()")


@once_per_trace
def awaited(trace: Trace) -> Turns | Sends | None:
    """What the others do; None where looks do not tell, or there are too few."""
    samples = trace.run.samples if trace.run else None
    if samples is None or samples.looks < FEWEST_LOOKS:
        return None
    others = [thread for thread in samples.threads if not thread.main]
    turns = _turns(trace, samples, others) or _one_is_answered(samples, others)
    return turns or _sends(samples, others)


def _turns(trace: Trace, samples: RunSamples, others: list[SampledThread]) -> Turns | None:
    cores = cores_free(trace)
    if cores is None or cores < SEVERAL_AT_ONCE or late_by_the_lock_ns(samples) >= LATE_NS:
        return None
    lines, on_core_ns = _by_function(samples, others)
    if not lines:
        return None
    at, seen = max(lines.items(), key=lambda item: item[1].total())
    at_once, used = seen.total() / samples.looks, on_core_ns[at] / 1e9 / samples.seconds
    if at_once < SEVERAL_AT_ONCE or not LEAST_CORE <= used <= ONE_CORE:
        return None
    stand = seen.most_common(1)[0][0]
    if not _at_a_lock(others, (*at, stand)):
        return None
    alone = {n: looks for n, looks in seen.items() if n != stand}
    works = max(alone, key=alone.__getitem__, default=stand)
    if not LEAST_CORE <= seen[works] / samples.looks <= ONE_AT_ONCE:
        works = stand
    file, function = at
    return Turns(
        at_once, function, Location(file, stand, function), Location(file, works, function), used
    )


def _one_is_answered(samples: RunSamples, others: list[SampledThread]) -> Turns | None:
    """Threads of which one at a time is past a lock or a semaphore, and waits there for an answer:
    of a network, a file or another process. Threads of a pool that have no work stand in no
    function of the program."""
    asks: Counter[PythonFrame] = Counter()
    inside: dict[PythonFrame, Counter[tuple[PythonFrame, str]]] = {}
    for thread in others:
        spent = [(own_frame(one.frames), one) for one in thread.spent]
        mine = [(f, one) for f, one in spent if f is not None and f.owner is Owner.USER]
        stand = Counter[PythonFrame]()
        for frame, one in mine:
            stand[frame] += one.looks * _asks(one)
        if not stand.total():
            continue
        at, looks = stand.most_common(1)[0]
        asks[at] += looks
        past = inside.setdefault(at, Counter())
        for frame, one in mine:
            past[frame, one.doing] += one.looks * (not _asks(one))
    if not asks:
        return None
    at, looks = asks.most_common(1)[0]
    past, at_once = inside[at], looks / samples.looks
    if at_once < SEVERAL_AT_ONCE or not LEAST_CORE <= past.total() / samples.looks <= ONE_AT_ONCE:
        return None
    (works, doing), most = past.most_common(1)[0]
    on_core_us = sum(o.on_core_us for t in others for o in t.spent if own_frame(o.frames) == works)
    used = on_core_us * NS_PER_US / 1e9 / samples.seconds
    if not doing or most < MOSTLY_RATIO * past.total() or used >= LEAST_CORE:
        return None
    stands = Location(at.file, at.line, at.function)
    place = Location(works.file, works.line, works.function)
    threads = at_once + past.total() / samples.looks
    return Turns(threads, at.function, stands, place, used, doing)


def _asks(one: Spent) -> bool:
    """Whether it asks for a lock, or for a place of those that a semaphore has."""
    return one.doing.endswith("acquire()") and any(map(_ACQUIRES.match, one.frames))


_Function = tuple[str, str]  # file and name


def _by_function(
    samples: RunSamples, others: list[SampledThread]
) -> tuple[dict[_Function, Counter[int]], Counter[_Function]]:
    """Looks at each line of the program's functions, and the time on cores of the threads that
    were mostly in each."""
    lines: dict[_Function, Counter[int]] = {}
    on_core_ns: Counter[_Function] = Counter()
    for thread in others:
        mine: Counter[PythonFrame] = Counter()
        for stack, looks in thread.stacks:
            frame = own_frame(samples.spelt(stack))
            if frame is not None and frame.owner is Owner.USER:
                mine[frame] += looks
        for frame, looks in mine.items():
            lines.setdefault((frame.file, frame.function), Counter())[frame.line] += looks
        if mine:
            most = max(mine, key=mine.__getitem__)
            on_core_ns[(most.file, most.function)] += thread.cpu_ns or 0
    return lines, on_core_ns


def _at_a_lock(others: list[SampledThread], line: tuple[str, str, int]) -> bool:
    """Whether threads at this line mostly call nothing, or ask for a lock by name."""
    spent_us: Counter[bool] = Counter()
    for thread in others:
        for one in thread.spent:
            frame = own_frame(one.frames)
            if frame is not None and (frame.file, frame.function, frame.line) == line:
                innermost = frame_of(one.frames[0]) == frame
                enters = (innermost or one.doing) and _enters(one.doing)
                spent_us[bool(enters)] += one.us - one.on_core_us
    return spent_us[True] > spent_us[False]


def _sends(samples: RunSamples, others: list[SampledThread]) -> Sends | None:
    file, function = _SENDS_TASKS
    for thread in others:
        spelt = [(samples.spelt(stack), looks) for stack, looks in thread.stacks]
        sends = sum(
            looks
            for stack, looks in spelt
            if any(file in name and name.endswith(function) for name in stack)
            and any(name.endswith(_SENDING) for name in stack)
        )
        if sends >= max(MOSTLY_RATIO * thread.looks, FEWEST_LOOKS):
            return Sends(sends, thread.looks)
    return None


STEPS_OF_STARTS = 3  # over which processes are started: a pool for all of the run comes at once


@once_per_trace
def starts_in_steps(trace: Trace) -> float | None:
    """Processes that the program starts in a step; None where not in every one, or not known."""
    samples, step_ns = trace.run.samples if trace.run else None, steps(trace).typical_ns
    usage = samples.usage if samples else None
    if usage is None or not usage.processes_started or not usage.starts_ns or not step_ns:
        return None
    a_step = usage.processes_started * step_ns / usage.starts_ns
    return a_step if a_step >= 1 and usage.starts_ns >= STEPS_OF_STARTS * step_ns else None


@dataclass(frozen=True)
class Works:
    """The function of the program in which other threads compute longest."""

    place: Location
    cores: float  # that they use there


@once_per_trace
def others_work(trace: Trace) -> Works | None:
    """None where looks do not tell, no such threads compute, or several functions share that."""
    samples = trace.run.samples if trace.run else None
    if samples is None or samples.looks < FEWEST_LOOKS or not samples.seconds:
        return None
    functions: Counter[_Function] = Counter()
    lines: Counter[PythonFrame] = Counter()
    for thread in samples.threads:
        for one in () if thread.main else thread.spent:
            frame = own_frame(one.frames)
            if frame is not None and frame.owner is Owner.USER:
                functions[frame.file, frame.function] += one.on_core_us
                lines[frame] += one.on_core_us
    if not functions:
        return None
    (at, us), of_us = functions.most_common(1)[0], functions.total()
    cores = us * NS_PER_US / 1e9 / samples.seconds
    if cores < LEAST_CORE or us < MOSTLY_RATIO * of_us:
        return None
    line = max((n for n in lines if (n.file, n.function) == at), key=lines.__getitem__)
    return Works(Location(line.file, line.line, line.function), cores)


ASLEEP_RATIO = 0.9  # of the time of the other threads in the program's code: nothing else is done
_SLEEP = "sleep()"  # of ``time``, as a look spells the call that it found a line at


def others_sleep(trace: Trace) -> Location | None:
    """The line at which all other threads of the program sleep, for a time that it sets itself:
    until the next request of a test comes, or the next look at something. None: they do more."""
    samples = trace.run.samples if trace.run else None
    if samples is None or samples.looks < FEWEST_LOOKS:
        return None
    slept: Counter[PythonFrame] = Counter()
    whole_us = 0
    for one in (one for t in samples.threads if not t.main for one in t.spent):
        frame = own_frame(one.frames)
        if frame is not None and frame.owner is Owner.USER:
            whole_us += one.us
            slept[frame] += one.us if one.doing.rpartition(".")[2] == _SLEEP else 0
    if not whole_us or slept.total() < ASLEEP_RATIO * whole_us:
        return None
    line = slept.most_common(1)[0][0]
    return Location(line.file, line.line, line.function)


def cores_free(trace: Trace) -> float | None:
    """Cores that the program may use; None: not known."""
    facts = run_facts(trace)
    known = [n for n in (facts.cores_allowed, facts.cores_there) if n is not None]
    return float(min(known)) if known else None
