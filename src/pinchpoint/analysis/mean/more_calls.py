"""Calls of which each step makes more than the one before, counted in what was recorded.

Times of steps say that they grow; a machine that becomes slower, or others that come to use it,
may do that, too. Counts cannot: the same operators, called so many times more in each step than in
the one before, in two windows of one run, are work that the program adds to. They are told from
inputs that grow longer by where they began: nothing that was added since the run's first step can
have been added more often than there were steps.
"""

from collections.abc import Collection, Mapping
from itertools import pairwise

import numpy as np

from pinchpoint.analysis.host.ancestry import above, parents
from pinchpoint.analysis.host.frames import (
    NAMELESS,
    Owner,
    PythonFrame,
    frame_of,
    owners,
    recorder_rows,
)
from pinchpoint.analysis.host.launches import issued
from pinchpoint.analysis.mean.growth import growth
from pinchpoint.analysis.statistics import median
from pinchpoint.analysis.steps.in_steps import window_of
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Rows
from pinchpoint.trace.run_samples import RunPart

FEWEST_STEPS = 4  # of the first window: three differences that are all the same
ONCE_MORE = 2  # steps of the second window, on the line of the first
LEAST_ADDED_RATIO = 0.005  # of a step's operators, in each step: less doubles no run of 200 steps
# Of the operators that grew in one window, those that go on in the other: some are called by data.
MOSTLY_RATIO = 0.5
_REGISTERS = regex(r"_?register_\w+")  # register_forward_hook, register_hook, atexit's register


@dataclass(frozen=True)
class Made:
    """What a step is made of, in any unit: with one call of each that is added, and by one more."""

    with_one: float
    added: float

    def left(self, units: float) -> float:
        """The part of a step with so many units that one unit leaves; 1 of nothing."""
        whole = self.with_one + max(units - 1, 0) * self.added
        return self.with_one / whole if whole else 1.0


@dataclass(frozen=True, eq=False)
class MoreCalls:
    """What is called more often in each step; a unit is what one step adds."""

    units: int  # in the first step of the first window
    last_units: int  # in the last step of the last window
    operators: int  # of the first step of the first window
    added: float  # operators that a unit is
    calls: int  # of ``function``, in a unit
    function: PythonFrame | None  # that is called so; None: no function of the program is
    # Of the program, that hands something to a library in each step which calls it from then on.
    registered: PythonFrame | None
    by_operators: Made  # their number, in the first window
    by_operator_time: Made  # the host's, of the operators that grow, in the first window
    by_function_time: Made  # the same in the window with functions, all that these do
    by_device_time: Made


@once_per_trace
def more_calls(trace: Trace) -> MoreCalls | None:
    """None unless two windows of the run show it, and a count that may have begun with the run."""
    named = trace.run.named if trace.run else None
    if named is None:
        return None
    first, second = _Counted(trace), _Counted(named)
    if first.steps < FEWEST_STEPS or second.steps < ONCE_MORE:
        return None
    grows = _on_one_line(first, second)
    total = first.counts.sum(axis=0)
    # Some operators that are called once more are also called by chance, and are on no line.
    added, operators = float(np.median(np.diff(total))), int(total[0])
    units = min((count // each for each, count in grows.values()), default=0)
    if not units or added < LEAST_ADDED_RATIO * operators or operators <= units * added:
        return None
    later = units + _units_between(first, second, grows)
    if later + second.steps - 1 > _steps_before(trace):
        return None
    functions = _Counted(named, HostKind.PYTHON)
    function = _most_called(named, _outermost(named, second, [*second.added(), *functions.added()]))
    return MoreCalls(
        units=units,
        last_units=later + second.steps - 1,
        operators=operators,
        added=added,
        calls=0 if function is None else functions.added()[function][0],
        function=None if function is None else frame_of(function),
        registered=_registered(named, second),
        by_operators=Made(operators - (units - 1) * added, added),
        by_operator_time=_time(trace, first, first.added(), units),
        by_function_time=_time(named, second, second.added() | functions.added(), later),
        by_device_time=_device_time(trace, first, units),
    )


class _Counted:
    """How often each operator began in each step of a window; ``counts`` is (names, steps)."""

    def __init__(self, trace: Trace, kind: HostKind = HostKind.OPERATOR) -> None:
        host, found = trace.host_ops, steps(trace)
        # A marked step is whole on the host, though the device may have begun it before.
        whole = found.complete | (found.how == "marker")
        self.steps, self.names = int(whole.sum()), trace.names
        self.start_ns, self.end_ns = found.host_start_ns[whole], found.host_end_ns[whole]
        self.counts = np.zeros((len(trace.names), self.steps), np.int64)
        if host is not None:
            self.step = window_of(host["start_ns"], self.start_ns, self.end_ns)
            rows = (self.step < self.steps) & (host["kind"] == kind) & ~recorder_rows(trace)
            np.add.at(self.counts, (host["name"][rows], self.step[rows]), 1)

    def added(self) -> dict[str, tuple[int, Ints]]:
        """Names that are called the same number of times more in each step, and their counts."""
        more = np.diff(self.counts, axis=1)
        rows = np.flatnonzero((more[:, 0] > 0) & (more == more[:, :1]).all(axis=1))
        return {self.names[row]: (int(more[row, 0]), self.counts[row]) for row in rows}


def _on_one_line(first: _Counted, second: _Counted) -> dict[str, tuple[int, int]]:
    """Operators that grow alike in both windows and between them: calls that a step adds, and those
    of the first step. Empty where most of those of the first window do not go on."""
    before, after = first.added(), second.added()
    found = {
        name: (each, int(counts[0]))
        for name, (each, counts) in before.items()
        if name in after and after[name][0] == each and _goes_on(counts, after[name][1], each)
    }
    return found if len(found) >= MOSTLY_RATIO * len(before) else {}


def _goes_on(counts: Ints, later: Ints, each: int) -> bool:
    apart = int(later[0] - counts[-1])
    return apart >= each and apart % each == 0


def _units_between(first: _Counted, second: _Counted, grows: dict[str, tuple[int, int]]) -> int:
    """From the first step of one window to that of the other, by the operator of most calls."""
    name = max(grows, key=lambda one: grows[one][0])
    each, count = grows[name]
    return (int(second.added()[name][1][0]) - count) // each


@dataclass(frozen=True)
class GrowingRun:
    """A run whose steps grow: early and late ones, and which were recorded. Numbers of steps."""

    first: int
    first_ns: int
    last: int
    last_ns: int
    recorded_after: int
    recorded_before: int


def growing_run(trace: Trace) -> GrowingRun | None:
    """None where the program's steps do not grow, or where it is not known that they do; medians of
    the first and the last quarter of the run, each told with its first step."""
    found = growth(trace)
    if more_calls(trace) is None and (found is None or found.why_not):
        return None
    parts = _parts(trace)
    after, before = _recorded_between(parts)
    quarter = max(len(parts) // 4, 1)
    ends = [
        (of[0].first, round(median(p.p50_ns for p in of)))
        for of in (parts[:quarter], parts[-quarter:])
    ]
    (first, first_ns), (last, last_ns) = ends
    if last_ns <= first_ns:  # others used the machine for longer early than late
        return None
    return GrowingRun(first, first_ns, last, last_ns, after, before)


def _parts(trace: Trace) -> list[RunPart]:
    samples = trace.run.samples if trace.run else None
    return [] if samples is None else [p for p in samples.parts if p.steps]


def _recorded_between(parts: list[RunPart]) -> tuple[int, int]:
    """The last step that was timed before the windows of the run and the first after them: its
    longest stretch without any. Zeros without samples of the run."""
    gaps = [
        (b.first - a.first - a.steps, a.first + a.steps - 1, b.first) for a, b in pairwise(parts)
    ]
    return max(gaps, default=(0, 0, 0))[1:]


def _steps_before(trace: Trace) -> int:
    """At most how many steps the run had made when its windows were recorded."""
    return _recorded_between(_parts(trace))[1]


def _device_time(trace: Trace, first: _Counted, units: int) -> Made:
    """By a line through the steps."""
    ops = trace.device_ops
    if ops is None or not len(ops):
        return Made(0.0, 0.0)
    at = window_of(issued(trace).start_ns, first.start_ns, first.end_ns)
    took = np.bincount(at, ops["duration_ns"], first.steps + 1)[: first.steps]
    slope, start = np.polyfit(np.arange(first.steps), took, 1)
    added = max(float(slope), 0.0)
    return Made(max(float(start) - (units - 1) * added, 0.0), added)


def _time(
    trace: Trace, counted: _Counted, grows: Mapping[str, tuple[int, Ints]], units: int
) -> Made:
    """Of the host's time for the steps, as a mean one has it, by calls of these names that grow."""
    host = trace.host_ops
    assert host is not None
    of_steps = sum(range(units, units + counted.steps))
    outer = _outermost(trace, counted, grows)
    took = np.bincount(host["name"][outer], host["duration_ns"][outer], len(trace.names))
    # Some of the calls of a name were there before any was added.
    added_ns = sum(
        float(took[row]) * min(grows[name][0] * of_steps / int(grows[name][1].sum()), 1.0)
        for row, name in enumerate(trace.names)
        if name in grows
    )
    whole_ns = float((counted.end_ns - counted.start_ns).sum())
    unit_ns = added_ns / max(of_steps, 1)
    return Made(max(whole_ns - added_ns, 0.0) / counted.steps + unit_ns, unit_ns)


def _outermost(trace: Trace, counted: _Counted, names: Collection[str]) -> Rows:
    """Rows of these names in the steps that no other one of them encloses."""
    host = trace.host_ops
    assert host is not None
    known = frozenset(names)
    mine = np.array([name in known for name in trace.names], np.bool_)[host["name"]]
    mine &= counted.step < counted.steps
    return np.flatnonzero(mine & (above(parents(host), mine) == len(host)))


def _most_called(named: Trace, outer: Rows) -> str | None:
    """The function of the program that encloses most of the time that grows."""
    host = named.host_ops
    assert host is not None
    functions = outer[owners(named)[outer] == Owner.USER]
    if not len(functions):
        return None
    took = np.bincount(host["name"][functions], host["duration_ns"][functions])
    return named.names[int(took.argmax())]


def _registered(named: Trace, second: _Counted) -> PythonFrame | None:
    """Where the program calls a function of a library that registers something, as often in each
    step as in the others; None where it does not, or more than one place does."""
    host = named.host_ops
    assert host is not None
    whose, up = owners(named), parents(host)
    names = np.array([_registers(name) for name in named.names], np.bool_)
    rows = np.flatnonzero(names[host["name"]] & (whose > Owner.USER) & (second.step < second.steps))
    if not len(rows) or len(set(np.bincount(second.step[rows], minlength=second.steps))) > 1:
        return None
    # A comprehension is of the function around it.
    nameless = np.array([_is_nameless(name) for name in named.names], np.bool_)
    callers = above(up, (whose == Owner.USER) & ~nameless[host["name"]])[rows]
    inside = callers[callers < len(host)]
    at = {named.names[name] for name in host["name"][inside]}
    return frame_of(at.pop()) if len(at) == 1 else None


def _is_nameless(name: str) -> bool:
    frame = frame_of(name)
    return frame is not None and frame.function in NAMELESS


def _registers(name: str) -> bool:
    frame = frame_of(name)
    return frame is not None and _REGISTERS.fullmatch(frame.function) is not None
