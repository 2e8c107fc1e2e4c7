"""Where the time of a whole run went that no recorded step shows, by looks at its main thread."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import sqrt

import msgspec
import numpy as np

from pinchpoint.analysis.host.frames import frame_of, is_recorder
from pinchpoint.analysis.host.on_cpu import computes_on_cpu, cpu_operators
from pinchpoint.analysis.mean.rare_steps import FEWEST_STEPS, RarePlace
from pinchpoint.analysis.mean.stacks import called, kind_of, names_a_call, own_frame
from pinchpoint.analysis.mean.ways import imports
from pinchpoint.analysis.mean.whole_run import HELD_RATIO, NS_PER_US, SWITCH_INTERVAL_NS
from pinchpoint.analysis.steps.in_steps import rows_in_steps
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.evidence.thread_of_steps import steps_on_main_thread
from pinchpoint.diagnosis.finding import Location
from pinchpoint.frozen import dataclass
from pinchpoint.trace import RunCourse, RunSamples, Trace, once_per_trace
from pinchpoint.trace.durations import duration, in_unit, time_unit

# A part of the run that is told although no step shows it: below it, the steps are the run.
LEAST_RUN_RATIO = 0.3
SHARE_SURE = 1.64  # deviates of a share of looks: nine in ten
FEWEST_LOOKS = 10  # fewer name a place by accident
CALL_NS = 10_000  # of an operator by itself: on CPUs calling one takes 1 to 10 µs, whatever it does
_LOADER = "torch/utils/data/dataloader.py"
_IMPORTING = (": _find_and_load", ": exec_module")  # of importlib
_STARTING = ("multiprocessing/process.py", ": start")
_STOPPING = (": _shutdown_workers", ": __del__")

Stack = tuple[str, ...]  # frames, innermost first
Seen = list[tuple[Stack, int]]  # with looks


@dataclass(frozen=True)
class Looks:
    """Looks at the main thread that have something in common, and at how many there were."""

    looks: int
    of: int
    place: RarePlace  # of most of them
    # Of the time between looks, which come late while somebody keeps the interpreter's lock; and of
    # the other time, what the thread was on a core for. None: not measured.
    time_ratio: float | None = None
    rest_on_core_ratio: float | None = None

    @property
    def ratio(self) -> float:
        """Their share of all."""
        return self.looks / max(self.of, 1)

    @property
    def sure_ratios(self) -> tuple[float, float]:
        """Least and most of their share, as of Laplace: of all looks may be by chance."""
        seen = self.looks if self.time_ratio is None else self.time_ratio * self.of
        share = (seen + 1) / (self.of + 2)
        spread = SHARE_SURE * sqrt(share * (1 - share) / max(self.of, 1))
        return max(share - spread, 0.0), min(share + spread, 1.0)

    @property
    def most_with_cores(self) -> tuple[float, float]:
        """The same, the most with what the thread lacked of a core meanwhile."""
        least, most = self.sure_ratios
        lacked = 0.0 if self.rest_on_core_ratio is None else 1 - self.rest_on_core_ratio
        return least, most + (1 - most) * lacked

    @property
    def location(self) -> Location | None:
        """The line of the program."""
        at = self.place.at
        return None if at is None else Location(file=at.file, line=at.line, function=at.function)


@once_per_trace
def waits_for_loader(trace: Trace) -> Looks | None:
    """Looks at which the main thread was in a loader's ``next``, of those between its steps.

    None where the steps of the run were timed, which says it exactly, or where there are too few.
    """
    samples = trace.run.samples if trace.run else None
    if samples is None or samples.count >= FEWEST_STEPS:
        return None
    running = [(s, n) for s, n in _main(samples) if not _in_loader(s, _STOPPING)]
    return _looks(running, lambda stack: _in_loader(stack, (": __next__",)))


@once_per_trace
def starts_workers(trace: Trace) -> Looks | None:
    """Looks at which the main thread was starting worker processes of a loader."""
    samples = trace.run.samples if trace.run else None
    if samples is None:
        return None
    return _looks([*_start(samples), *_main(samples)], _starts)


def before_the_steps(course: RunCourse) -> str:
    """``9.89 s of the 17.3 s of the run``: until its third step, in the unit of the whole run."""
    unit = time_unit(course.total_ns)
    before = in_unit(course.before_ns or 0, unit)
    return f"{before} {unit} of the {duration(course.total_ns)} of the run"


@once_per_trace
def compiles_first(trace: Trace) -> Looks | None:
    """Looks before the third step at which the main thread was compiling."""
    samples = trace.run.samples if trace.run else None
    if samples is None:
        return None
    return _looks(_start(samples), _compiles)


@once_per_trace
def works_first(trace: Trace) -> int:
    """Looks before the third step at which the main thread did more than to import."""
    samples = trace.run.samples if trace.run else None
    seen = [] if samples is None else _start(samples)
    return sum(looks for stack, looks in seen if _compiles(stack) or not imports(stack))


@once_per_trace
def compiles_at(trace: Trace) -> Location | None:
    """The line of the program at which its main thread was seen compiling most, in its steps or,
    where none were seen, in the whole run."""
    samples = trace.run.samples if trace.run else None
    found = None if samples is None else _looks(_main(samples), _compiles)
    return None if found is None else found.location


@once_per_trace
def computes_at(trace: Trace) -> Looks | None:
    """The function of the program at which its main thread was seen computing most, with the looks
    there and in what it calls, of all at which it neither loaded, waited nor compiled; ``place``
    has its usual line. Collecting what it leaves is computing, too.

    None where the run was not sampled, or seen too seldom.
    """
    samples = trace.run.samples if trace.run else None
    if samples is None or not steps_on_main_thread(trace):
        return None
    late = waited_before(trace, samples) | _in_long_operators(trace, samples)
    us = {one.frames: one.us for t in samples.threads if t.main for one in t.spent}
    spent: Counter[tuple[str, str]] = Counter()  # looks come late where the lock is kept
    seen: dict[tuple[str, str], Counter[RarePlace]] = {}
    computing: list[tuple[Stack, int]] = []
    for stack, looks in [*_start(samples), *_main(samples)]:
        own = own_frame(stack)
        if own is None or stack in late or _imports(stack) or kind_of(stack) not in _COMPUTING:
            continue
        computing.append((stack, looks))
        seen.setdefault((own.file, own.function), Counter())[RarePlace(own, None)] += looks
        spent[own.file, own.function] += us.get(stack, 0)
    if not seen:
        return None
    place, most = max(seen.items(), key=lambda item: (spent[item[0]], item[1].total()))
    if most.total() < FEWEST_LOOKS:
        return None
    inside = sum(looks for stack, looks in computing if is_in(stack, place))
    of = sum(looks for _, looks in computing)
    return Looks(inside, of, most.most_common(1)[0][0])


_COMPUTING = (GapKind.PYTHON, GapKind.GC)


def waited_before(trace: Trace, samples: RunSamples) -> set[Stack]:
    """Stacks at which looks say nothing: at an operator of torch, which gives the lock up, after it
    was held. Such a look was due while Python ran before the operator, up to a switch interval;
    where more time was seen there in each step, it cannot all have been before."""
    names = (name for name in trace.names if name.startswith("aten::"))
    operators = {name.removeprefix("aten::") for name in names}
    most_us = max(samples.count, 1) * SWITCH_INTERVAL_NS // NS_PER_US
    main = next((t for t in samples.threads if t.main), None)
    return {
        one.frames
        for one in (() if main is None else main.spent)
        if one.doing.removesuffix("()").rpartition(".")[2] in operators
        and HELD_RATIO * one.us <= one.held_us
        and one.us <= most_us
    }


def _in_long_operators(trace: Trace, samples: RunSamples) -> set[Stack]:
    """Of a program on CPUs, stacks at operators that compute: what passes there is theirs, and no
    part of what passes outside operators or in calling small ones."""
    host = trace.host_ops
    if host is None or not computes_on_cpu(trace):
        return set()
    own = cpu_operators(trace)
    rows = np.flatnonzero(own.operator & rows_in_steps(trace, host))
    took = np.bincount(host["name"][rows], own.own_ns[rows], len(trace.names))
    long = own.own_ns[rows] > CALL_NS
    computing = np.bincount(host["name"][rows], long * own.own_ns[rows], len(trace.names))
    mostly = np.flatnonzero((took > 0) & (2 * computing > took))
    names = {trace.names[name].removeprefix("aten::").strip("_") for name in mostly.tolist()}
    return {
        one.frames
        for thread in samples.threads
        if thread.main
        for one in thread.spent
        if one.doing.removesuffix("()").rpartition(".")[2].strip("_") in names
    }


def collected_ratio(trace: Trace) -> float:
    """Of the looks that came while garbage was collected, those where the program computes most:
    what is collected there is left by its work. 0 where no look did."""
    looks, samples = computes_at(trace), trace.run.samples if trace.run else None
    if looks is None or looks.place.at is None or samples is None:
        return 0.0
    place = (looks.place.at.file, looks.place.at.function)
    found = [(s, n) for s, n in _main(samples) if kind_of(s) is GapKind.GC]
    inside = sum(n for stack, n in found if is_in(stack, place))
    return inside / max(sum(n for _, n in found), 1)


def is_in(stack: Stack, place: tuple[str, str]) -> bool:
    """Whether a function is among the frames: what it calls goes with it."""
    frames = (frame_of(name) for name in stack)
    return any(frame is not None and (frame.file, frame.function) == place for frame in frames)


def waits_for_others(trace: Trace) -> Looks | None:
    """Looks at the main thread after its cold steps at which it waited for other threads, in one
    function of the program; ``place`` has its usual line."""
    samples = trace.run.samples if trace.run else None
    if samples is None or not steps_on_main_thread(trace):
        return None
    seen: dict[tuple[str, str], Counter[RarePlace]] = {}
    main = _main(samples)
    for stack, looks in main:
        own = own_frame(stack)
        if own is not None and _waits_there(stack, (own.file, own.function)):
            at = seen.setdefault((own.file, own.function), Counter())
            at[RarePlace(own, None)] += looks
    most = max(seen.values(), key=Counter.total, default=Counter[RarePlace]())
    if most.total() < FEWEST_LOOKS:
        return None
    place = most.most_common(1)[0][0]
    found = Looks(most.total(), sum(n for _, n in main), place)
    spent = [one for thread in samples.threads if thread.main for one in thread.spent]
    of_us = sum(one.us for one in spent)
    if not of_us:
        return found
    where = (place.at.file, place.at.function) if place.at else ("", "")
    rest = [one for one in spent if not _waits_there(one.frames, where)]
    rest_us = sum(one.us for one in rest)
    on_core = min(sum(one.on_core_us for one in rest) / max(rest_us, 1), 1.0)
    return replace(found, time_ratio=1 - rest_us / of_us, rest_on_core_ratio=on_core)


def _waits_there(stack: Stack, where: tuple[str, str]) -> bool:
    own = own_frame(stack)
    waits = kind_of(stack) is GapKind.WAIT and not _in_loader(stack, ("",))
    return waits and own is not None and (own.file, own.function) == where


def _imports(stack: Stack) -> bool:
    return any("importlib" in frame for frame in stack)


def _compiles(stack: Stack) -> bool:
    """Not where the compiler itself is imported; what it imports while it works is its work."""
    imports = [i for i, frame in enumerate(stack) if frame.endswith(_IMPORTING)]
    return kind_of(stack[imports[-1] + 1 :] if imports else stack) is GapKind.COMPILE


def waits_at(trace: Trace, place: Location | None) -> Location | None:
    """The same function with the line that most looks at a wait in it saw: a recording has only the
    line at which the function begins."""
    samples = trace.run.samples if trace.run else None
    if samples is None or place is None:
        return place
    lines: Counter[int] = Counter()
    for thread in samples.threads:
        for stack, looks in thread.stacks:
            spelt = samples.spelt(stack)
            own = own_frame(spelt) if kind_of(spelt) is GapKind.WAIT else None
            if own is not None and (own.file, own.function) == (place.file, place.function):
                lines[own.line] += looks
    if not lines:
        return place
    return msgspec.structs.replace(place, line=lines.most_common(1)[0][0])


def line_of_call(trace: Trace, place: Location | None, call: str) -> Location | None:
    """The same function with the line of most time by looks, of those at this call if there are
    any: a recording has the line at which a function begins, or was when recording began."""
    samples = trace.run.samples if trace.run else None
    if samples is None or place is None:
        return place
    at_call, lines = Counter[int](), Counter[int]()
    late = waited_before(trace, samples)  # due before the line at which they came
    for one in (o for thread in samples.threads for o in thread.spent if o.frames not in late):
        own = own_frame(one.frames)
        if own is not None and (own.file, own.function) == (place.file, place.function):
            lines[own.line] += one.us
            if one.doing.removesuffix("()").rpartition(".")[2] == call:
                at_call[own.line] += one.us
    known = at_call or lines
    if not known:
        return place
    return msgspec.structs.replace(place, line=known.most_common(1)[0][0])


def call_at(trace: Trace, place: Location | None) -> str:
    """What a line calls, where most looks at it were at one call: ``np.random.choice()``."""
    samples, calls, whole_us = trace.run.samples if trace.run else None, Counter[str](), 0
    late = waited_before(trace, samples) if samples else set()
    for one in (one for t in samples.threads for one in t.spent) if samples and place else ():
        if one.frames in late:  # due before that line
            continue
        own = own_frame(one.frames)
        assert place is not None
        if own is not None and (own.file, own.line) == (place.file, place.line):
            whole_us += one.us
            calls[one.doing] += one.us
    call, us = max(calls.items(), key=lambda item: item[1], default=("", 0))
    return call if 2 * us > whole_us and names_a_call(call) else ""


def _main(samples: RunSamples) -> Seen:
    main = next((t for t in samples.threads if t.main), None)
    return [] if main is None else [(samples.spelt(stack), n) for stack, n in main.stacks]


def _start(samples: RunSamples) -> Seen:
    """Recording itself is no work of the program."""
    seen = [(samples.spelt(stack), n) for stack, n in samples.start]
    return [(stack, n) for stack, n in seen if not any(map(is_recorder, stack))]


def _in_loader(stack: Stack, functions: tuple[str, ...]) -> bool:
    return any(_LOADER in frame and frame.endswith(functions) for frame in stack)


def _starts(stack: Stack) -> bool:
    file, function = _STARTING
    begun = any(file in frame and frame.endswith(function) for frame in stack)
    return begun and any(_LOADER in frame for frame in stack)


def _looks(seen: Seen, wanted: Callable[[Stack], bool]) -> Looks | None:
    of = sum(looks for _, looks in seen)
    found = [(stack, looks) for stack, looks in seen if wanted(stack)]
    count = sum(looks for _, looks in found)
    if count < FEWEST_LOOKS:
        return None
    places: Counter[RarePlace] = Counter()
    for stack, looks in found:
        places[RarePlace(own_frame(stack), called(stack))] += looks
    return Looks(count, of, places.most_common(1)[0][0])
