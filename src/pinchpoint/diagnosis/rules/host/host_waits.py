"""The thread of the steps waits for another thread, a batch, the device, other ranks or a timer.

## What it looks for
Time on the thread that launches in a call that only waits: a lock, `queue.get`, `Event.wait`,
`Condition.wait`, a future's `result`, `select` and `poll`, `recv`, `sleep`; in a loader's `next`;
in a synchronisation with the device that is not the end of the step; in a collective that the host
does (gloo, MPI). Waits for the backward pass and for a program that was started have names of their
own and are left out, as is the join of threads that a call starts itself and that compute
meanwhile, as SciPy's `workers=` does. Where an event loop waits, looks at the run say which
coroutine's `asyncio.sleep` it waits for: of one that asks for something again and again, or that
computes by itself; another one may send requests at a pace of its own. Told is the function of the
program that the step would get at least 10 % shorter without, unless other findings explain it.
Without Python stacks no wait for a thread shows, but looks at a whole run show it.

## Why it matters
A thread that waits launches nothing. A batcher that waits 30 ms for requests to fill a batch which
they never fill, a `sleep` between two polls, a lock that a slow thread holds: the device idles.

## How to fix it
A timeout: as short as the work of one batch, and a batch no larger than what comes in meanwhile. A
sleep: wait for the event itself. Another thread or process: make it quicker, or ask it earlier. The
device: keep its results there, and read them a step late. Threads that take turns at a lock: hold
it only where they touch what they share; which line that is, looks at all threads of the run tell
(`pinchpoint run` takes them), as they tell a lock that one other thread keeps while it works: then
Python's own lock is free. A pool that is sent large tasks: send names and numbers, and let the
workers read or keep the data. Other ranks: use the device's backend, or begin earlier what is
waited for here; who is late, all ranks together show. Without Python stacks in the recording, these
looks stand in.

## When to ignore it
Where there is nothing to do: a server that waits for requests which have not come loses nothing.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
from msgspec import structs

from pinchpoint.analysis.host.on_cpu import compiled_for_cpu, computes_on_cpu
from pinchpoint.analysis.host.source_lines import place_of, places
from pinchpoint.analysis.host.timeline import NO_ROW, HostPieces, host_rows
from pinchpoint.analysis.mean.what_if import step_base_ns, what_if_mean
from pinchpoint.analysis.replay import Change, DropSyncs, RemoveHostTime
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.gaps import host_did
from pinchpoint.analysis.time.host_activity import GapKind, activity, waits_for_xla
from pinchpoint.diagnosis.evidence.awaited import (
    HOLD_SHORTER,
    Sends,
    awaited,
    kept_lock,
    others_sleep,
)
from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.evidence.forked_threads import waits_for_its_own_threads
from pinchpoint.diagnosis.evidence.known_ways import with_known_way
from pinchpoint.diagnosis.evidence.loading import loads
from pinchpoint.diagnosis.evidence.whole_run import waits_at, waits_for_others
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import STACKS, Record
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule, shows_torch
from pinchpoint.diagnosis.rules.host._what_is_awaited import (
    OF_KIND,
    SLEEP,
    THREAD,
    What,
    of_collective,
    what_a_loop_awaits,
    what_of_call,
    what_others_do,
)
from pinchpoint.frozen import dataclass
from pinchpoint.trace import ApiKind, HostKind, Trace
from pinchpoint.trace.arrays import Ints, Mask, distinct
from pinchpoint.trace.durations import duration
from pinchpoint.trace.intervals import flatten, intersect

RULE = Rule(
    needs=("host_ops",),
    record=STACKS,
    residual=True,
    fix_known=True,
    periodic=True,
    advice=NO_HINT,
)

# Host time varies by a tenth between runs of one program.
LEAST_GAIN_RATIO = 0.10
LEAST_NS = 500_000  # a lock that another thread holds for a moment takes less
# The interpreter's timers are late by 50 to 100 µs, and a wait begins when the thread before it is
# done: waits for one timer differ by that, waits for work of others by more.
ALIKE_RATIO = 0.15
# A judgement: what the others take by themselves is not known, nearly all of the wait or nothing.
LEAST_WON_RATIO = 0.1


@dataclass(frozen=True, eq=False)
class _Waits:
    """Stretches of waiting in one function of the program."""

    start_ns: Ints
    end_ns: Ints
    of_steps: Ints  # ns of each judged step
    ns_per_step: int
    row: int  # of ``host_rows``, of the longest stretch
    call: str  # what waits there
    around: str  # annotation around that; empty: none
    kind: GapKind
    location: Location | None
    changes: tuple[Change, ...]


def check(trace: Trace) -> Iterator[Found | Small]:
    """The place at which the thread of the steps waits longest, for others and for the device."""
    base, windows = step_base_ns(trace), judged_steps(trace)
    if base is None or not len(windows):
        raise NotChecked("no step is known")
    thread = np.full(len(windows), steps(trace).thread, np.int64)
    did, kept = host_did(trace, thread, windows.start_ns, windows.end_ns), _kept(trace, base)
    asleep = None
    for kinds in ((GapKind.WAIT, GapKind.DATA), (GapKind.SYNC,), (GapKind.HOST_COLLECTIVE,)):
        waits = _longest(trace, did, kinds)
        if waits is None or waits.ns_per_step < LEAST_NS or not _may_be_told(trace, waits):
            continue
        if small := _too_small(trace, waits, base):
            yield small
        elif waits.kind is GapKind.WAIT and (asleep := _for_a_sleeper(trace, waits)) is not None:
            continue
        elif not kept or not _is_of_lock(trace, waits):
            found = _as_looked_at(trace, _finding(trace, waits), waits, base)
            makes_it_itself = waits.kind is GapKind.DATA  # or workers do, elsewhere
            yield with_known_way(trace, found, keeps_fix=True) if makes_it_itself else found
    yield from _otherwise(trace, base, kept, asleep)


def _otherwise(
    trace: Trace, base_ns: int, kept: Found | None, asleep: Location | None
) -> Iterator[Found]:
    """Locks that another keeps, as looks tell; else why nothing more can be said of waits."""
    if kept is not None:
        yield kept
    elif asleep is not None:
        raise NotChecked(
            f"the thread of the steps waits for others, which sleep meanwhile, in {asleep}: whether"
            " there is nothing to do, as between requests, or they sleep too long, does not show",
            Record("the same where the next request is always there"),
            fits=True,
        )
    elif not _has_stacks(trace):
        if (looked_at := _seen_in_looks(trace, base_ns)) is None:
            raise NotChecked("without Python stacks a wait looks like any Python")
        yield looked_at


def _for_a_sleeper(trace: Trace, waits: _Waits) -> Location | None:
    """Where the threads that are awaited sleep by themselves; None where they do not."""
    return others_sleep(trace) if what_of_call(waits.call) is THREAD else None


def _may_be_told(trace: Trace, waits: _Waits) -> bool:
    """Not waits for batches that are ready, nor for work that is done meanwhile."""
    if waits.kind is GapKind.WAIT and (
        _while_xla_computes(trace, waits)
        or waits_for_its_own_threads(trace, waits.row, waits.ns_per_step)
    ):
        return False
    if waits.kind is GapKind.DATA:
        loader = loads(trace)
        return loader is None or loader.starving
    return True


def _too_small(trace: Trace, waits: _Waits, base_ns: int) -> Small | None:
    """Where little is waited, or for work that the device has to do anyway; None: enough is won."""
    if waits.ns_per_step < LEAST_GAIN_RATIO * base_ns:
        return Small(waits.ns_per_step / base_ns, LEAST_GAIN_RATIO)
    if waits.kind is not GapKind.SYNC:
        return None
    after = what_if_mean(trace, waits.changes)
    won = 0.0 if after is None else max(after.saving_ns, 0) / base_ns
    return Small(won, LEAST_GAIN_RATIO) if won < LEAST_GAIN_RATIO else None


def _while_xla_computes(trace: Trace, waits: _Waits) -> bool:
    """Whether it is for what XLA compiled for the CPU, by its name or as that runs for most of the
    wait: it is the work, of which not all threads are recorded."""
    ops = trace.compiled_ops
    if ops is None or not compiled_for_cpu(trace):
        return False
    if waits_for_xla(waits.call):
        return True
    busy, idle = flatten(ops["start_ns"], ops.end_ns), flatten(waits.start_ns, waits.end_ns)
    return 2 * intersect(busy, idle).total > idle.total


def _has_stacks(trace: Trace) -> bool:
    return trace.host_ops is not None and bool((trace.host_ops["kind"] == HostKind.PYTHON).any())


def _longest(trace: Trace, did: HostPieces, kinds: tuple[GapKind, ...]) -> _Waits | None:
    """The waits of these kinds in one function, most time together."""
    windows = judged_steps(trace)
    does = activity(trace)[did.row]
    at = np.flatnonzero(np.isin(does, kinds))
    at = at[(does[at] != GapKind.SYNC) | _launches_later(trace, did.asked[at], did.end_ns[at])]
    if not len(at):
        return None
    start, end, row = did.start_ns[at], did.end_ns[at], did.row[at]
    frame = places(trace).frame[row]
    busiest = frame == frame[_most(frame, end - start)]
    start, end, row = start[busiest], end[busiest], row[busiest]
    longest = int(np.argmax(end - start))
    kind = GapKind(does[at][busiest][longest])
    if kind is GapKind.WAIT and _for_other_ranks(trace, start, end):
        kind = GapKind.HOST_COLLECTIVE
    operators = host_rows(trace).operators
    calls = distinct(row[row >= operators]) - operators
    gone: tuple[Change, ...] = (
        (DropSyncs(calls),) if kind is GapKind.SYNC else (RemoveHostTime(start, end),)
    )
    loader = loads(trace) if kind is GapKind.DATA else None
    step = np.searchsorted(windows.start_ns, start, "right") - 1
    return _Waits(
        start,
        end,
        np.bincount(step, end - start, len(windows)).astype(np.int64),
        round(float((end - start).sum()) / len(windows)),
        int(row[longest]),
        trace.names[host_rows(trace).name[row[longest]]],
        place_of(trace, int(row[longest])).annotation or "",
        kind,
        waits_at(trace, location_of(trace, int(row[longest]))),
        gone if loader is None else (*gone, *loader.ready),
    )


def _for_other_ranks(trace: Trace, start_ns: Ints, end_ns: Ints) -> bool:
    """Whether any thread does a collective of the host for most of these stretches."""
    rows, kinds = host_rows(trace), activity(trace)[:-1]
    shared = kinds == GapKind.HOST_COLLECTIVE
    busy = flatten(rows.start_ns[shared], rows.end_ns[shared])
    waits = flatten(start_ns, end_ns)
    return 2 * intersect(busy, waits).total > waits.total


def _launches_later(trace: Trace, step: Ints, end_ns: Ints) -> Mask:
    """Whether something is launched after each piece in its step: its end may be awaited."""
    calls, windows = trace.api_calls, judged_steps(trace)
    if calls is None or not len(step):
        return np.zeros(len(step), np.bool_)
    launches = np.isin(calls["kind"], (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH, ApiKind.COPY))
    started = np.sort(calls["start_ns"][launches])
    ends = windows.end_ns[step]
    later: Mask = np.searchsorted(started, ends) > np.searchsorted(started, end_ns)
    return later


def _most(group: Ints, took: Ints) -> int:
    """Position of a member of the group with the largest sum."""
    numbers, inverse = np.unique(group - NO_ROW, return_inverse=True)
    busiest = int(np.bincount(inverse, took, len(numbers)).argmax())
    return int(np.flatnonzero(inverse == busiest)[0])


def _seen_in_looks(trace: Trace, base_ns: int) -> Found | None:
    """Of a recording without stacks, what looks at the run say of waits for others."""
    waits = waits_for_others(trace)
    named = trace.run.named if trace.run else None
    if waits is None or (named is not None and _has_stacks(named)) or not shows_torch(trace):
        return None
    sends = isinstance(awaited(trace), Sends)  # which takes memory and cores of all else, too
    least, most = waits.most_with_cores if sends else waits.sure_ratios
    low, high = round(least * base_ns), round(most * base_ns)
    if low < max(LEAST_GAIN_RATIO * base_ns, LEAST_NS):
        return None
    what = what_others_do(trace) or THREAD
    return Found(
        summary=(
            f"The thread of the steps waits in {waits.location} for {what.waits_for}:"
            f" {waits.looks} of {waits.of} looks at the program found it there"
        ),
        evidence=(
            Evidence("looks at the program that found it there", waits.looks, "count"),
            Evidence("of all", waits.of, "count"),
        ),
        cost_ns_per_step=(low + high) // 2,
        saving_ns_per_step=(round(LEAST_WON_RATIO * low), high),
        location=what.location or waits.location,
        fix=what.fix,
        confidence="medium",
    )


def _kept(trace: Trace, base_ns: int) -> Found | None:
    """A lock that another thread keeps while it works, by looks at both."""
    kept, samples = kept_lock(trace), trace.run.samples if trace.run else None
    if kept is None or samples is None or not samples.count:
        return None
    of_step = min(kept.waited_ns / kept.of_ns * samples.total_ns / samples.count, base_ns)
    if of_step < max(LEAST_GAIN_RATIO * base_ns, LEAST_NS):
        return None
    most = min(round(of_step), round(base_ns * kept.waited_ns / kept.of_ns))
    return Found(
        summary=(
            f"The thread of the steps waits in {kept.waits} for a lock of the program, for"
            f" {100 * kept.waited_ns / kept.of_ns:.0f} % of its time, while thread {kept.thread}"
            f" works in {kept.works}; Python's own lock is free meanwhile"
        ),
        evidence=(
            Evidence("asleep there", round(of_step), "ns per step"),
            Evidence("looks that found it there", kept.looks, "count"),
        ),
        cost_ns_per_step=round(of_step),
        saving_ns_per_step=(round(LEAST_WON_RATIO * most), most),
        location=kept.works,
        fix=HOLD_SHORTER,
        confidence="medium",
    )


def _finding(trace: Trace, waits: _Waits) -> Found:
    what = OF_KIND.get(waits.kind) or what_of_call(waits.call)
    if waits.kind is GapKind.HOST_COLLECTIVE:
        what = of_collective(waits.call, waits.around, on_cpus=computes_on_cpu(trace))
    if waits.kind is GapKind.WAIT:
        other = what_others_do if what is THREAD else partial(what_a_loop_awaits, call=waits.call)
        what = other(trace) or what
    where = f" in {waits.location}" if waits.location and str(waits.location) else ""
    of_steps = waits.of_steps
    least, most = int(of_steps.min()), int(of_steps.max())
    alike = waits.kind is GapKind.WAIT and len(of_steps) > 2 and most - least <= ALIKE_RATIO * most
    return Found(
        summary=(
            f"The thread that launches waits {duration(waits.ns_per_step)}"
            f" of each recorded step{where} for"
            f" {what.waits_for}"
            + (", about as long each time, as a timeout would" if alike else "")
        ),
        evidence=(
            Evidence("waiting there", waits.ns_per_step, "ns per step"),
            Evidence("shortest in a step", least, "ns"),
            Evidence("longest in a step", most, "ns", name=waits.call),
        ),
        cost_ns_per_step=waits.ns_per_step,
        changes=_in_part(waits, what),
        location=what.location or waits.location,
        fix=what.fix,
        confidence="high" if what is SLEEP else "medium",
        in_steps_ns=tuple(of_steps.tolist()) if waits.kind is GapKind.WAIT else (),
        in_collectives=waits.kind is GapKind.HOST_COLLECTIVE,
    )


def _as_looked_at(trace: Trace, found: Found, waits: _Waits, base_ns: int) -> Found:
    """With what the whole run shows of the wait, where that is more than was recorded: others keep
    their pace, while recording holds up the thread that waits for them."""
    looks = waits_for_others(trace) if waits.kind is GapKind.WAIT else None
    if looks is None or waits.location is None or not computes_on_cpu(trace):
        return found
    at, here = looks.location, waits.location
    if at is None or (at.file, at.function) != (here.file, here.function):
        return found
    what = what_of_call(waits.call)
    what = (what_others_do(trace) or what) if what is THREAD else what
    low, high = (round((1 - what.left_ratio) * ratio * base_ns) for ratio in looks.sure_ratios)
    recorded = what_if_mean(trace, found.changes)
    if recorded is None or low <= recorded.saving_ns:
        return found
    return structs.replace(
        found,
        evidence=(
            *found.evidence,
            Evidence("looks at the program that found it there", looks.looks, "count"),
            Evidence("of all", looks.of, "count"),
        ),
        cost_ns_per_step=max(waits.ns_per_step, high),
        saving_ns_per_step=(recorded.base_ns - recorded.range_ns[1], high),
        likely_saving_ns=(low + high) // 2,
    )


def _in_part(waits: _Waits, what: What) -> tuple[Change, ...]:
    """The waits, but for what the others still take once they all get on at once."""
    if not what.left_ratio:
        return waits.changes
    rest = ((waits.end_ns - waits.start_ns) * what.left_ratio).astype(np.int64)
    return (RemoveHostTime(waits.start_ns + rest, waits.end_ns),)


def _is_of_lock(trace: Trace, waits: _Waits) -> bool:
    kept = kept_lock(trace)
    return kept is not None and waits.kind is GapKind.WAIT and kept.is_awaited_in(waits.location)
