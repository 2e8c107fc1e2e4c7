"""Calls of which each step makes more than the one before, counted in what was recorded.

Times of steps say that they grow; a machine that becomes slower, or others that come to use it,
may do that, too. Counts cannot: the same operators, called so many times more in each step than in
the one before, in two windows of one run, are work that the program adds to. They are told from
inputs that grow longer by where they began: nothing that was added since the run's first step can
have been added more often than there were steps.
"""

from itertools import pairwise

import numpy as np

from pinchpoint.analysis.host.ancestry import above, parents
from pinchpoint.analysis.host.frames import Owner, PythonFrame, frame_of, owners, recorder_rows
from pinchpoint.analysis.mean.growth import growth
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
    left_ratio: float  # of a step's time in the window with functions, with a single unit
    unit_ratio: float  # of the same, by a unit

    def left_of_operators(self, units: float) -> float:
        """The part of a step's operators, when it has so many units, that one unit leaves."""
        least = self.operators - (self.units - 1) * self.added
        return least / (least + max(units - 1, 0) * self.added)

    def left_of_time(self, units: float) -> float:
        """The same of the host's time."""
        return self.left_ratio / (self.left_ratio + max(units - 1, 0) * self.unit_ratio)


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
    last_units = units + _units_between(first, second, grows) + second.steps - 1
    if last_units > _steps_before(trace):
        return None
    return _of(named, second, (units, last_units, operators, added))


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
    """None where the program's steps do not grow, or where it is not known that they do."""
    found = growth(trace)
    if more_calls(trace) is None and (found is None or found.why_not):
        return None
    parts = _parts(trace)
    after, before = _recorded_between(parts)
    ends = parts[0], parts[-1]
    return GrowingRun(ends[0].first, ends[0].p50_ns, ends[1].first, ends[1].p50_ns, after, before)


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


def _of(named: Trace, second: _Counted, known: tuple[int, int, int, float]) -> MoreCalls:
    host = named.host_ops
    assert host is not None
    functions = _Counted(named, HostKind.PYTHON)
    names = set(second.added()) | set(functions.added())
    mine = np.array([name in names for name in named.names], np.bool_)[host["name"]]
    mine &= second.step < second.steps
    up = parents(host)
    outer = np.flatnonzero(mine & (above(up, mine) == len(host)))
    took = int(host["duration_ns"][outer].sum())
    whole = int((second.end_ns - second.start_ns).sum())
    units, last_units, operators, added = known
    all_units = sum(range(last_units - second.steps + 1, last_units + 1))
    unit_ratio = second.steps * took / max(whole, 1) / max(all_units, 1)
    function = _most_called(named, outer)
    return MoreCalls(
        units=units,
        last_units=last_units,
        operators=operators,
        added=added,
        calls=0 if function is None else functions.added()[function][0],
        function=None if function is None else frame_of(function),
        registered=_registered(named, second),
        left_ratio=max(1 - took / max(whole, 1) + unit_ratio, unit_ratio),
        unit_ratio=unit_ratio,
    )


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
    callers = above(up, whose == Owner.USER)[rows]
    inside = callers[callers < len(host)]
    at = {named.names[name] for name in host["name"][inside]}
    return frame_of(at.pop()) if len(at) == 1 else None


def _registers(name: str) -> bool:
    frame = frame_of(name)
    return frame is not None and _REGISTERS.fullmatch(frame.function) is not None
