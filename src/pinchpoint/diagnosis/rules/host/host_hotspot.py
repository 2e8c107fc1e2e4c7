"""One place in the program keeps the host busy while the device waits, and no rule says why.

## What it looks for
Time on the thread of the steps in which the host computes: Python between two launches beyond what
dispatching takes, or operators that work on CPU tensors; and in which it saves, logs, compiles,
collects garbage, or is in a call to the driver that launches nothing. Of each source line
(function) its whole is removed in replay; told is the one that the step would get at least 10 %
shorter by. Of a cold start, work that names itself comes in one step alone, and is left out; so is
what other findings explain.
Of a torch program that was recorded without stacks, the function is the one in which looks
at the whole run found its main thread, with that share of what passes outside operators or in
operators so short that calling them takes the time. What collecting its garbage takes, and what its
thread takes longer later in the run, is of that place, too. Looks at an operator that had to wait
for the interpreter's lock say nothing about places: they were due in the Python before it.
In a program without a device operators are the work itself: a function counts only if it computes
longer than the operators that it calls. Looks at the steps that were not recorded
say how much of them the function has, for recording makes all else longer and not what one call of
C does; of that, as much as was not in operators; said is the middle of both, and what the line
calls.
Where an operator on the CPU fills a tensor that the same function then sends to the device, the
copy and the wait for its buffer go with it, if what the operator reads fits into half of the
device's memory: the device makes the same at the rate of rows at random places.

## Why it matters
A loop over elements, a call of NumPy or an operator on a tensor that was left on the CPU takes
milliseconds in which nothing is launched, and no list of causes has them all.

## How to fix it
Do it on the device as operators on whole tensors, once before the loop, or in another process.

## When to ignore it
Where the work is wanted and can be nowhere else.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from pinchpoint.analysis.causal.computing import (
    HostComputing,
    called_back,
    host_computing,
    shared_callers,
)
from pinchpoint.analysis.causal.python_of_places import mostly_python
from pinchpoint.analysis.host.frames import NAMELESS, frame_of
from pinchpoint.analysis.host.on_cpu import compiled_for_cpu, computes_on_cpu
from pinchpoint.analysis.host.source_lines import functions_of
from pinchpoint.analysis.host.timeline import NO_ROW, host_rows
from pinchpoint.analysis.mean.on_cpu import fair_step_ratio, slower_outside
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.analysis.replay import RemoveHostTime
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.evidence.growing import inside_calls_for_history
from pinchpoint.diagnosis.evidence.heard import changes_each_time, said_of
from pinchpoint.diagnosis.evidence.known_calls import (
    advice_at,
    advice_for_what_runs,
    advised,
)
from pinchpoint.diagnosis.evidence.known_ways import with_known_way
from pinchpoint.diagnosis.evidence.named_work import CALLS_THE_DRIVER, COMPUTES, NAMED, Work
from pinchpoint.diagnosis.evidence.operators import known
from pinchpoint.diagnosis.evidence.seen_computing import (
    LEAST_GAIN_RATIO,
    LEAST_NS,
    by_looks,
    garbage_left_ns,
    seen_computing,
)
from pinchpoint.diagnosis.evidence.sent_to_device import made_on_the_device, sent, sent_after
from pinchpoint.diagnosis.evidence.whole_run import call_at, line_of_call
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.diagnosis.rules.host._what_runs import (
    NO_NAME,
    runs_an_operator,
    without_tracer,
)
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Ints, distinct
from pinchpoint.trace.durations import duration

RULE = Rule(("host_ops",), STACKS, residual=True, removes_host_work=True, advice=NO_HINT)

AGAIN = 2  # steps: loading code, compiling or allocating once is a cold start
MOST_SHARES = 3  # functions that are named of work that is spread over several
MOST_TOLD = 2  # the engine drops those that other findings explain
# Around the call of a compiled function; of one with side effects JAX has a way of its own.
_CALL_OF_JAX = regex(r"PjitFunction\(|jax/_src/(interpreters/)?pxla\.py\(\d+\): __call__$")
_BUILTIN = regex(r"<built-in (?:method|function) (\w+)")


@dataclass(frozen=True, eq=False)
class _Spot:
    """What the host computes at one place."""

    what: Ints  # positions of the stretches
    ns_per_step: int
    name: str  # of the row that holds most of it
    on_cpu: bool  # that row is an operator
    in_driver: bool  # it is a call to the driver
    does: GapKind  # what most of it is
    calls: float  # a step
    steps: int  # that have some of it
    row: int  # of host_rows, the longest stretch
    location: Location | None
    shares: tuple[tuple[str, float], ...] = ()  # of functions that it calls, where it is no one's


def check(trace: Trace) -> Iterator[Found | Small]:
    """Places where the host computes, most time first."""
    yield from (with_known_way(trace, one) for one in _places(trace))


def _places(trace: Trace) -> Iterator[Found | Small]:
    base = step_base_ns(trace)
    if base is None or not len(judged_steps(trace)):
        raise NotChecked("no step is known")
    if (looked_at := _seen_in_looks(trace, base)) is not None:
        yield looked_at
        return
    found = host_computing(trace)
    # Without a device operators are the work itself; rules about programs on CPUs judge them.
    if computes_on_cpu(trace) or compiled_for_cpu(trace):
        found = mostly_python(trace, found)
    shared, back = _shared(trace, found), called_back(trace, found)
    other = np.where(back != NO_ROW, back, shared)
    spots = [_spot(trace, found, at, other, back) for at in _by_place(trace, found, other)]
    # Where others have the cores, operators of several threads wait far longer than Python does.
    whole = base * fair_step_ratio(trace)
    least = max(LEAST_GAIN_RATIO * whole, LEAST_NS)
    if compiled_for_cpu(trace) and steps(trace).how == "none":
        return  # how much of it the recorder itself took does not show
    spots.sort(key=lambda spot: -spot.ns_per_step)
    worth = [s for s in spots if s.ns_per_step >= least and _may_be_told(trace, s)]
    yield from (_finding(trace, found, spot) for spot in worth[:MOST_TOLD])
    small = next((s for s in spots if LEAST_NS <= s.ns_per_step < least), None)
    if small is not None and _may_be_told(trace, small):
        yield Small(small.ns_per_step / whole, LEAST_GAIN_RATIO)


def _may_be_told(trace: Trace, spot: _Spot) -> bool:
    """What comes again, or surely is the program's own work."""
    if compiled_for_cpu(trace) and _in_a_compiled_call(trace, spot.row):
        return False
    if computes_on_cpu(trace) and spot.row in np.flatnonzero(inside_calls_for_history(trace)):
        return False  # what a library does with a history is told with that
    return spot.steps >= AGAIN or _work(spot) is COMPUTES


def _seen_in_looks(trace: Trace, base_ns: int) -> Found | None:
    """Of a torch program whose recording has no stacks, what looks at the run say."""
    seen = seen_computing(trace)
    if seen is None:
        return None
    looks, alone = seen.looks, computes_on_cpu(trace)
    calling = Evidence(_OUTSIDE if alone else _MEANWHILE, seen.calling_ns, "ns per step")
    more = {_LEAVES: seen.garbage_ns, _LATER: seen.grown_ns}
    said = [f"{duration(ns)} {at}" for at, ns in more.items() if ns >= LEAST_GAIN_RATIO * base_ns]
    keeps = "Keep what it makes from step to step, or do it" if said else "Do it"
    low, high = seen.saving_ns
    return Found(
        summary=(
            f"The host computes in {looks.location}: {looks.looks} of {looks.of} looks at the"
            f" program found it there, and {duration(seen.calling_ns)} of the step pass"
            f" {', '.join([calling.what, *said])}"
        ),
        evidence=(
            Evidence("looks at the program that found it there", looks.looks, "count"),
            Evidence("of all", looks.of, "count"),
            calling,
            *(Evidence(at, ns, "ns per step") for at, ns in more.items() if ns),
        ),
        cost_ns_per_step=(low + high) // 2,
        saving_ns_per_step=(low, high),
        location=looks.location,
        fix=without_tracer(trace)
        + advised(
            f"{keeps} with operators on whole tensors, once before the loop, or in another process",
            advice_for_what_runs(trace, looks.location),
            advice_at(trace, looks.location),
        ),
        confidence="medium",
    )


_LEAVES = "in collecting what it leaves"
_LATER = "later in the run, in which each step is longer"
_OUTSIDE = "outside operators or in calling small ones"
_MEANWHILE = "in Python while the device has nothing to do"


def _shared(trace: Trace, found: HostComputing) -> Ints:
    """Of stretches of Python, the function that calls several which compute; of work that names
    itself none: each kind has a fix of its own."""
    named = np.isin(activity(trace)[found.row], tuple(NAMED))
    return np.where(named, NO_ROW, shared_callers(trace, found))


def _by_place(trace: Trace, found: HostComputing, shared: Ints) -> list[Ints]:
    """Positions of the stretches, by the program's function around them, or else their name; of
    several that one calls, by that one."""
    rows = np.append(host_rows(trace).name.astype(np.int64), NO_ROW)
    frame, name = functions_of(trace, found.row), rows[found.row]
    frame = np.where(shared != NO_ROW, shared, frame)
    key = np.where(frame != NO_ROW, frame, len(trace.names) + 1 + name)
    order = np.argsort(key, kind="stable")
    edges = np.flatnonzero(np.diff(key[order])) + 1
    return [at for at in np.split(order, edges) if len(at)]


def _spot(trace: Trace, found: HostComputing, at: Ints, other: Ints, back: Ints) -> _Spot:
    rows, host = host_rows(trace), trace.host_ops
    assert host is not None
    took, row = found.took_ns[at], found.row[at]
    name = rows.name[row]
    most = _mostly(name, took)
    here = row[name == most]
    longest = int(here[np.argmax(took[name == most])])
    moved = at[other[at] != NO_ROW]
    caller = _function(trace, int(other[moved[0]])) if len(moved) else None
    name_of_most = trace.names[_without_ranges(trace, longest, most)]
    spread = caller is not None and not (back[at] != NO_ROW).any()
    return _Spot(
        what=at,
        ns_per_step=round(float(took.sum()) / max(found.steps, 1)),
        name=name_of_most,
        on_cpu=longest < len(host) and bool(host["kind"][longest] == HostKind.OPERATOR),
        in_driver=longest >= len(host),
        does=GapKind(_mostly(activity(trace)[row], took)),
        calls=len(distinct(here)) / max(found.steps, 1),
        steps=len(distinct(judged_steps(trace).step_of(found.start_ns[at]))),
        row=longest,
        location=_location(trace, longest) if caller is None else caller,
        shares=_shares(trace, row, took) if spread else (),
    )


def _without_ranges(trace: Trace, row: int, name: int) -> int:
    """The name of a row; of a range that somebody named, that of the function it is in."""
    host = trace.host_ops
    assert host is not None
    if row >= len(host) or host["kind"][row] != HostKind.ANNOTATION:
        return name
    around = int(functions_of(trace, np.array([row]))[0])
    return name if around == NO_ROW else around


def _function(trace: Trace, name: int) -> Location | None:
    frame = frame_of(trace.names[name])
    return None if frame is None else Location(frame.file, frame.line, frame.function)


def _shares(trace: Trace, row: Ints, took: Ints) -> tuple[tuple[str, float], ...]:
    """The functions of the program that have most of it."""
    spent: Counter[str] = Counter()
    for name, ns in zip(functions_of(trace, row).tolist(), took.tolist(), strict=True):
        frame = None if name == NO_ROW else frame_of(trace.names[name])
        spent[frame.function if frame else "others"] += ns
    return tuple((name, ns / spent.total()) for name, ns in spent.most_common(MOST_SHARES))


def _in_a_compiled_call(trace: Trace, row: int) -> bool:
    """Whether it lies in the call of a compiled function, which on a CPU is the work itself."""
    rows = host_rows(trace)
    while row != NO_ROW:
        if _CALL_OF_JAX.match(trace.names[rows.name[row]]):
            return True
        row = int(rows.parent[row])
    return False


def _mostly(what: NDArray[np.integer], took: Ints) -> int:
    """The one that is there with most time; what recording cost may exceed what a stretch took."""
    there, which = np.unique(what, return_inverse=True)
    return int(there[np.bincount(which, took).argmax()])


def _location(trace: Trace, row: int) -> Location | None:
    at = location_of(trace, row)
    if at is None or at.function not in NAMELESS:
        return at
    around = frame_of(trace.names[int(functions_of(trace, np.array([row]))[0])])
    return at if around is None else replace(at, line=around.line, function=around.function)


def _finding(trace: Trace, found: HostComputing, spot: _Spot) -> Found:
    at, alone = line_of_call(trace, spot.location, _call(spot)), computes_on_cpu(trace)
    where = f" in {at}" if at else ""
    entry = known(spot.name, "") if spot.on_cpu else None
    generic = not (spot.on_cpu or _work(spot).fix)
    of_call = advice_at(trace, at, spot.name) if generic else ""
    runs = advice_for_what_runs(trace, at, spot.name) if generic else ""
    mine = found.took_ns[spot.what]
    longest = int(spot.what[np.argmax(mine)])
    uploads, waits = sent_after(trace, found.row[spot.what])
    garbage_ns = 0 if spot.does in NAMED else garbage_left_ns(trace, at)
    changes = (
        RemoveHostTime(found.start_ns[spot.what], found.end_ns[spot.what], garbage_ns),
        *made_on_the_device(trace, uploads, waits),
    )
    looked = by_looks(trace, found, spot.what, at, changes)
    return Found(
        summary=(
            f"The host {_work(spot).verb} for {duration(spot.ns_per_step)} a step"
            + (f" ({duration(looked.ns)} of those not recorded, by looks)" if looked.ns else "")
            + where
            + _said(trace, spot, at, alone=alone)
            + (", and the result is copied to the device" if len(uploads) else "")
            + said_of(trace, at)
            + (f"; {duration(garbage_ns)} {_LEAVES}" if garbage_ns else "")
        ),
        evidence=(
            Evidence("host computing there", spot.ns_per_step, "ns per step"),
            *((Evidence("by looks at the run", looked.ns, "ns per step"),) * bool(looked.ns)),
            Evidence("calls", round(spot.calls, 2), "per step"),
            Evidence(
                "longest stretch", int(mine.max()), "ns", int(found.start_ns[longest]), spot.name
            ),
            *sent(trace, uploads),
            *((Evidence(_LEAVES, garbage_ns, "ns per step"),) if garbage_ns else ()),
        ),
        # Looks are at steps that were not recorded, which others may have made longer than these.
        cost_ns_per_step=max(spot.ns_per_step, round(looked.ns / slower_outside(trace)))
        + garbage_ns,
        changes=looked.changes,
        at_best=looked.at_best,
        location=at,
        fix=without_tracer(trace)
        + advised(
            _fix(spot, alone=alone, once=not changes_each_time(trace, at)),
            runs,
            f". {entry.instead}" if entry else of_call,
        ),
        confidence="medium",
    )


def _said(trace: Trace, spot: _Spot, at: Location | None, *, alone: bool) -> str:
    """What it does there; of a program without a device nothing where its place says it."""
    if spot.shares:
        in_each = ", ".join(f"{name} {100 * ratio:.0f} %" for name, ratio in spot.shares)
        return f"{'' if alone else ' while it launches nothing'}: of that {in_each}"
    lead = ", " if alone else " while it launches nothing: "
    if at is None or at.function != _call(spot):
        return lead + _what(spot)
    call = call_at(trace, at)
    if call and not (alone and runs_an_operator(trace, call)):  # which is no part of this
        return f"{lead}mostly in {call}"
    return "" if alone else lead + _what(spot)


def _work(spot: _Spot) -> Work:
    if spot.in_driver and spot.does not in NAMED:
        return CALLS_THE_DRIVER
    return NAMED.get(spot.does, COMPUTES)


def _what(spot: _Spot) -> str:
    if spot.on_cpu and spot.does not in NAMED:
        return f"{spot.name} and what is around it work on tensors on the CPU"
    if spot.in_driver:
        return f"mostly {spot.name}"
    frame = frame_of(spot.name)
    elsewhere = frame and spot.location and frame.file != spot.location.file
    file = f" ({frame.file}:{frame.line})" if frame and elsewhere else ""
    call = NO_NAME.get(_call(spot), _call(spot))
    call = "a function without a name" if call in NAMELESS else call
    return f"mostly {'' if spot.does in NAMED else 'Python in '}{call}{file}"


def _call(spot: _Spot) -> str:
    """The name of the function that has most of it."""
    frame, builtin = frame_of(spot.name), _BUILTIN.match(spot.name)
    return frame.function if frame else builtin[1] if builtin else spot.name


def _fix(spot: _Spot, *, alone: bool, once: bool) -> str:
    named = _work(spot).fix
    if named:
        return named
    if spot.on_cpu:
        return "Keep the tensor on the device and compute there"
    if alone:
        return (
            f"Do it {'once if what it reads stays, ' * once}on whole arrays, or in another process"
        )
    before = ", once before the loop" if once else ""
    return f"Do it with operators on whole tensors{before}, or in another process"
