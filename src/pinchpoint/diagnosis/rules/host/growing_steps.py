"""Each step is longer than the one before.

## What it looks for
Steps of the whole run, timed and sampled by `pinchpoint run` in chronological parts, whose medians
rise without an end: by the test of Mann and Kendall, with the slope of Theil and Sen and its
interval, in every quarter of the run and not levelling off. The growth has to lie at a few places
of the program while the rest of the step stays as it was, and with it what the program keeps, or
the work of its own thread: a machine that becomes slower, or fuller, shows neither. Where the host
waits for the device no place of it tells. Then a window that was recorded late, once steps were a
quarter longer, tells which operators take longer; without one, what is held of the device has to
grow at least as much as the step, and the operator is not known. Without a
device, and where others use the machine so that the times of steps have no trend, what the thread
of the steps spends on a core has to grow in the same way; where it more than doubles at such a
place, it may also have come at once, or level off.

Steps whose recorded operators are called the same number of times more in each step than in the
one before, in two windows of the run and on one line from its first step on, need none of that:
work that is counted grows, however the times vary. Named is the function that is called so, and
where the program registers something with a library in each step (a hook, a callback), that line.

## Why it matters
A run of ten times the steps does not take ten times as long, but up to a hundred times.

## How to fix it
Do not begin from the beginning in each step: keep a running sum instead of the history, append
instead of concatenating, register hooks and callbacks once, bound what is kept.

## When to ignore it
Where steps are meant to grow, as with sequences that become longer, up to a length that is known.
"""

from collections import Counter
from collections.abc import Iterator
from math import hypot, sqrt

import numpy as np

from pinchpoint.analysis.host.attribution import launching_operators
from pinchpoint.analysis.host.frames import PythonFrame
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.mean.growth import EXPLAINED_RATIO, FEWEST_PARTS, Growth, growth, same_pace
from pinchpoint.analysis.mean.more_calls import MoreCalls, growing_run, more_calls
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.analysis.replay.binding import bound
from pinchpoint.analysis.replay.ranges import AFTER_A_FIX
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps, per_step
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.evidence.ready_batches import grows_by_waits
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints, Rows
from pinchpoint.trace.durations import duration

_LONGER = Record("a longer run: pinchpoint run python train.py, beside nothing else")

RULE = Rule(needs=("host_ops",), record=_LONGER)

LEAST_RATIO = 0.75  # of what is won where all growth goes: a running sum takes something, too


def check(trace: Trace) -> Iterator[Found]:
    """The growth of the steps, with the place that grew most."""
    samples = trace.run.samples if trace.run else None
    if samples is None or len(samples.parts) < FEWEST_PARTS:
        raise NotChecked("the steps of the whole run were not timed, or are too few")
    counted, found = more_calls(trace), growth(trace)
    if counted is not None:
        yield _of_calls(trace, counted)
        return
    if found is None:
        return
    work = _grown_work(trace)
    if found.why_not and found.ends and grows_by_waits(trace, found):
        return
    if found.why_not and (work is None or found.ends):
        core = " on a core" if found.on_core else ""
        raise NotChecked(
            f"steps became longer, from {duration(found.early_ns)} to {duration(found.late_ns)}"
            f"{core}{_most_of_it(found)}, yet {found.why_not}",
            fits=True,
        )
    # A thread that shares its core takes as much longer by the clock for all that it does.
    most_ns = round((found.mean_ns - found.early_ns) * found.clock_ratio)
    on_device = work if found.why_not or not found.places else None
    yield Found(
        summary=_sentence(found, on_device),
        evidence=tuple(_evidence(found)),
        cost_ns_per_step=most_ns,
        saving_ns_per_step=(round(LEAST_RATIO * most_ns), max(_most_won_ns(trace, found), most_ns)),
        location=_location(found) if on_device is None else on_device.location,
        fix=_AT_ITS_END
        if found.ends
        else _GROWS
        if found.places or work
        else _fix_on_device(found),
        hint=None if found.ends else _RUNNING_SUM,
        confidence="high" if on_device or (len(found.signs) > 1 and found.places) else "medium",
    )


_REMOVED = "Register it once, before the loop, or remove it when the step is done with it"
_REMOVE = "handle = module.register_forward_hook(hook)  # … after the pass: handle.remove()"


def _left_doubt_ratio(trace: Trace) -> float:
    """Of the step that is left, by how much it may be off: as any step after a fix, by the share
    of it in which the device works and by the host's."""
    of_device = bound(trace).device_ratio
    return hypot(AFTER_A_FIX.device * of_device, AFTER_A_FIX.host * (1 - of_device))


def _of_calls(trace: Trace, counted: MoreCalls) -> Found:
    """What is called once more in each step, with a single one of them left."""
    assert trace.run is not None
    assert trace.run.samples is not None
    parts = [part for part in trace.run.samples.parts if part.steps]
    middle = sum(p.steps * (p.first + p.steps / 2) for p in parts) / sum(p.steps for p in parts)
    base_ns = step_base_ns(trace) or 0
    both = _left(trace, counted, middle)
    left_ns, doubt = base_ns * sqrt(both[0] * both[1]), _left_doubt_ratio(trace)
    most_ns = base_ns - round(base_ns * min(both) * (1 - doubt))
    # As doubtful is what is added, where that is the lesser part.
    least_ratio = 1 - max(both) * (1 + doubt), (1 - max(both)) * (1 - doubt)
    least_ns = round(base_ns * max(least_ratio))
    place = counted.registered or counted.function
    called = counted.function
    what = "The same operators" if called is None else _spelt(called)
    count = counted.calls or round(counted.added)
    more = f"{count} more time{'s' * (count != 1)}"
    last = f"{counted.calls * counted.last_units} times " if counted.calls else ""
    register = counted.registered
    said = f": {_spelt(register)} registers it anew, and it stays" if register else ""
    return Found(
        summary=(
            f"{what} {'are' if called is None else 'is'} called {more} in each step than in the one"
            f" before, {last}in the last recorded one{said}{_course(trace)}"
        ),
        evidence=(
            Evidence("operators of the first recorded step", counted.operators, "count"),
            Evidence("operators that each step adds", counted.added, "count"),
            Evidence("times that it was added by the first recorded step", counted.units, "count"),
            Evidence("by the last recorded step", counted.last_units, "count"),
            Evidence("middle of the run", round(middle), "step"),
            Evidence("left of such a step, at least", round(min(both), 3), "ratio"),
            Evidence("at most", round(max(both), 3), "ratio"),
        ),
        cost_ns_per_step=round(base_ns - left_ns),
        saving_ns_per_step=(least_ns, most_ns),
        likely_saving_ns=round(base_ns - left_ns),
        location=None if place is None else Location(place.file, place.line, place.function),
        fix=_REMOVED if counted.registered else _GROWS,
        hint=_REMOVE if counted.registered else None,
    )


def _left(trace: Trace, counted: MoreCalls, units: float) -> tuple[float, float]:
    """The part of a step that is left with a single call, by two measures of what the step is made
    of: the device's time where it works most of it, else the host's. Where that dispatches,
    operators are told by number; on a CPU one may take a thousand times as long as another."""
    functions = counted.by_function_time.left(units)
    if computes_on_cpu(trace):
        return counted.by_operator_time.left(units), functions
    if bound(trace).device_ratio >= MOSTLY_DEVICE_RATIO:
        return (counted.by_device_time.left(units),) * 2
    return counted.by_operators.left(units), functions


MOSTLY_DEVICE_RATIO = 0.5  # of the step, in which the device works


def _course(trace: Trace) -> str:
    run = growing_run(trace)
    if run is None:
        return ""
    return (
        f". Steps took {duration(run.first_ns)} from step {run.first:,} on, and"
        f" {duration(run.last_ns)} from step {run.last:,} on"
    )


def _spelt(frame: PythonFrame) -> str:
    return str(Location(frame.file, frame.line, frame.function))


def _most_won_ns(trace: Trace, found: Growth) -> int:
    """Of a step of the whole run, far ones included: what a line says that it took more than at its
    beginning, which lies before the first quarter's middle; or all that the named places take, as
    where a sum of fixed size takes the place of a history."""
    before_ns = 0.0 if found.ends else max(found.trend.slope_ns, 0.0) * found.first
    places_ns = sum(place.early_ns + place.late_ns for place in found.places) / 2
    left_ns = min(found.early_ns - before_ns, found.mean_ns - places_ns)
    left_ratio = min(max(left_ns / max(found.mean_ns, 1), 0.0), 1.0)
    mean_ns = max(step_base_ns(trace) or 0, round(found.mean_ns * found.clock_ratio))
    return round((1 - left_ratio) * mean_ns)


_GROWS = "Do what grows once, or go on from the result of the step before"


def _fix_on_device(found: Growth) -> str:
    return (
        f"{_GROWS}. To see what grows, record late, and compare with this: pinchpoint run"
        f" --after-steps {found.last} …"
    )


_RUNNING_SUM = "total += value; count += 1  # in place of a history gone through in each step"
_AT_ITS_END = (
    "Look at what changed there in the course of the run: a container that filled, longer inputs,"
    " or values that the processor is slow with (subnormal floats: torch.set_flush_denormal(True))"
)


def check_run(trace: Trace) -> Iterator[Found]:
    """The same of a run whose steps were timed and not recorded."""
    found = growth(trace)
    from pinchpoint.diagnosis.evidence.run_places import in_the_run

    for one in check(trace):
        assert found is not None
        yield in_the_run(trace, one, (one.cost_ns_per_step or 0) * found.steps)


@dataclass(frozen=True)
class _GrownWork:
    """Operators whose work on the device grew from one window to another, late in the run."""

    operator: str  # with most growth
    location: Location | None
    early_ns: int  # of one step, of that operator
    late_ns: int


def _grown_work(trace: Trace) -> _GrownWork | None:
    """None without two such windows, or where no few operators grew so that the rest stayed."""
    late, early = trace.run.late if trace.run else None, trace.with_names
    if late is None or not (before := _by_operator(early)) or not (after := _by_operator(late)):
        return None
    more = Counter({name: ns - before.get(name, 0) for name, ns in after.items()})
    most = {name: ns for name, ns in more.most_common(MOST_OPERATORS) if ns > 0}
    whole = [sum(before.values()), sum(after.values())]
    rest = [sum(ns for name, ns in of.items() if name not in most) for of in (before, after)]
    little = sum(most.values()) < EXPLAINED_RATIO * (whole[1] - whole[0])
    if whole[1] < (1 + LEAST_RISE_RATIO) * whole[0] or little or same_pace(rest, whole):
        return None
    first = next(iter(most))
    place = _place_of(late, set(most))
    return _GrownWork(first, place, before.get(first, 0), after[first])


LEAST_RISE_RATIO = 0.1  # as of the steps: the window is made once they are a quarter longer
MOST_OPERATORS = 5  # a sort is one of them, and copies, gathers and sums around it


def _by_operator(trace: Trace) -> dict[str, int]:
    """Nanoseconds of the device a step, by the operator that launched it."""
    operators, ns = _launched(trace)
    host = trace.host_ops
    if host is None or not len(operators):
        return {}
    codes, which = np.unique(host["name"][operators], return_inverse=True)
    sums = np.bincount(which, weights=ns)
    return {
        trace.names[code]: round(per_step(trace, int(took)))
        for code, took in zip(codes, sums, strict=True)
    }


def _place_of(trace: Trace, names: set[str]) -> Location | None:
    """Where most of the time of these operators is launched."""
    operators, ns = _launched(trace)
    host = trace.host_ops
    if host is None or not len(operators):
        return None
    mine = np.array([trace.names[code] in names for code in host["name"][operators]], np.bool_)
    return busiest_place(trace, operators[mine], ns[mine])[0]


def _launched(trace: Trace) -> tuple[Rows, Ints]:
    """Of device operations of the judged steps: the operators that launched them, and how long."""
    ops, host = trace.device_ops, trace.host_ops
    if ops is None or host is None or not len(judged_steps(trace)):
        return np.zeros(0, np.intp), np.zeros(0, np.int64)
    rows = np.flatnonzero(device_ops_in_steps(trace))
    operators = launching_operators(trace)[rows]
    known = operators < len(host)
    return operators[known], ops["duration_ns"][rows[known]].astype(np.int64)


def _sentence(found: Growth, work: _GrownWork | None) -> str:
    if found.ends:
        which = f"Late steps {_longer(found)} than early ones"
    else:
        which = f"Each step {_longer(found)} than the one before"
    said = (
        f"{which}: {duration(found.early_ns)} at step"
        f" {found.first:,}, {duration(found.late_ns)} at step {found.last:,}"
    )
    if work is not None:
        where = f" in {work.location}" if work.location else ""
        return (
            f"{said}, mostly because of {work.operator}{where}: {duration(work.early_ns)} of the"
            f" device and then {duration(work.late_ns)} a step"
        )
    if not found.places:
        return f"{said}, as more and more is kept on the device ({'; '.join(found.signs)})"
    first = found.places[0]
    early = duration(first.early_ns) if first.early_ns else "nothing that was seen"
    return (
        f"{said}, mostly because of {_location(found)}: {early} and then"
        f" {duration(first.late_ns)} a step"
    )


def _longer(found: Growth) -> str:
    if found.ends:
        return "have their thread on a core for longer"
    return "has its thread on a core for longer" if found.on_core else "is longer"


def _location(found: Growth) -> Location | None:
    if not found.places:
        return None
    at = found.places[0].at
    return Location(file=at.file, line=at.line, function=at.function)


def _evidence(found: Growth) -> Iterator[Evidence]:
    low, high = found.trend.slope_range_ns
    what = "its thread on a core" if found.on_core else "typical step"
    yield Evidence(f"{what} in the first quarter of the run", found.early_ns, "ns")
    yield Evidence("in the last quarter", found.late_ns, "ns")
    yield Evidence("growth by step", round(found.trend.slope_ns), "ns")
    yield Evidence("at least, 99 % sure", round(low), "ns")
    yield Evidence("at most", round(high), "ns")
    yield Evidence("trend, in standard deviations of chance", round(found.trend.deviates, 1), "")
    yield Evidence("steps", found.steps, "count")
    for place in found.places:
        at = f"{place.at.function} ({place.at.file}:{place.at.line})"
        yield Evidence(f"more at {at}, late in the run", place.more_ns, "ns")
    yield Evidence("grew with them", "; ".join(found.signs), "")


def _most_of_it(found: Growth) -> str:
    """The place with most growth, where it has more than half."""
    place = next(iter(found.places), None)
    if place is None or 2 * place.more_ns < found.late_ns - found.early_ns:
        return ""
    return f", most of it in {Location(place.at.file, place.at.line, place.at.function)}"
