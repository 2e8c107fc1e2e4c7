"""Waits of the host that no event shows: all that is recorded is that the thread says nothing.

``block_until_ready()``, ``float(array)`` and ``np.asarray(array)`` are C++ methods, which no tracer
of Python sees, and XLA waits in none of the driver's calls. What such a wait leaves is a silence: a
thread that has given work away says nothing until all of that work is done, and goes on a moment
later. Computing that no event shows leaves silences, too. What tells them apart:

- A wait never ends before the work does, at its place in the program, turn by turn.
- It ends as soon as waking up takes, and that does not vary with what is waited for: computing
  ends when it likes, so that its end and that of the work wander apart.

A place is the innermost row around the silence and the event just before it. Where an event beside
it is XLA's word that it waits, work that ends within it is enough. Recorders that write down the
calls which wait (CUPTI for torch) need none of this: a silence there is computing.
"""

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Names, Table
from pinchpoint.trace.arrays import Array, Ints, Mask, Rows, distinct, distinct_rows
from pinchpoint.trace.intervals import (
    NO_ROW,
    contains,
    covered_before,
    flatten,
    innermost,
    nest,
    nesting_order,
)

LEAST_SILENCE_NS = 50_000  # several times what a dispatch leaves between two of its parts
FEWEST = 3  # silences at a place: once or twice is chance
LEAST_RATIO = 0.9  # of the silences at a place; the first and the last may be cut
# From the end of the work to the next event of who waited for it. The median was 100 to 230 us on
# an H100, an H200, an MI300 and on CPUs, with Python's frames recorded and without.
MOST_LATE_NS = 400_000
MOST_LATE_RATIO = 0.25  # of the silence; where that is shorter, chance would do as well
# Ends of computing are at least as far from those of the work as silences are unlike each other,
# and 1.4 times where the work varies as much; those of waits are nearer, whatever varies.
MOST_SPREAD_RATIO = 1.25
SCATTER_NS = 20_000  # of waking up, which is no evidence of either
MOST_OF_THEM = (10, 90)  # percentiles between which values spread
# Of a silence on a CPU, in which XLA's own threads compute: less is no work to wait for so long.
# Much of what they do is in no event (0.4 of a pass of a network in another library's threads).
LEAST_AT_WORK_RATIO = 0.25
# Where XLA says that it waits, what comes after is quick if it often is; else the thread waits for
# a core, too.
PROMPT_PERCENTILE = 25

# How Python's functions are spelt.
_FUNCTION = regex(r"[^\n]+\(\d{1,9}\): [^\n]+")
_NUMBER = regex(r"\d{1,18}")
# What XLA's own client writes down before or after it waits; its plugins for devices do not.
_AWAITS = "CommonPjRtBuffer::Await"
_CALL_OF_A_PROGRAM = "PjitFunction("


@dataclass(frozen=True, eq=False)
class SilentWaits:
    """Waits that only silence shows, one a row."""

    thread: Ints
    start_ns: Ints
    end_ns: Ints  # the thread is awake again, as soon as it ever was at that place


@dataclass(frozen=True, eq=False)
class _Silences:
    """Stretches in which a thread said nothing, one a row."""

    thread: Ints
    start_ns: Ints
    end_ns: Ints
    place: Rows  # a number from 0
    awaits: Mask  # XLA says just before or after that it waits for an array


def waits_for_devices(host: Table, calls: Table, ops: Table, names: Names) -> SilentWaits:
    """Where threads that launch wait for what was launched before."""
    linked = np.flatnonzero(ops.known("api_call"))
    call = ops["api_call"][linked]
    found = _silences(host, calls, distinct(calls["thread"][call]), names)
    until = _until(calls["start_ns"][call], ops.end_ns[linked], found.start_ns)
    return _waits(found, until, until > found.start_ns)


def waits_for_threads(host: Table, calls: Table, names: Names) -> SilentWaits:
    """Where threads that call compiled programs wait for XLA's threads, which compute them."""
    callers = distinct(host["thread"][np.isin(host["name"], _of_calls(names))])
    found = _silences(host, calls, callers, names)
    computes = host["kind"] == HostKind.OPERATOR
    computes &= ~np.isin(host["thread"], callers)
    start, end = host["start_ns"][computes], host.end_ns[computes]
    busy = flatten(start, end)
    work = covered_before(busy, found.end_ns) - covered_before(busy, found.start_ns)
    at_work = work >= LEAST_AT_WORK_RATIO * (found.end_ns - found.start_ns)
    return _waits(found, _until(start, end, found.end_ns), at_work)


def _until(begun_ns: Ints, end_ns: Ints, asked_ns: Ints) -> Ints:
    """When all work that was begun before each asked time was done; 0 where none was."""
    order = np.argsort(begun_ns, kind="stable")
    until = np.append(0, np.maximum.accumulate(end_ns[order]))
    done: Ints = until[np.searchsorted(begun_ns[order], asked_ns)]
    return done


def _waits(found: _Silences, done_ns: Ints, at_work: Mask) -> SilentWaits:
    """The silences at places where they are waits; ``at_work``: with work under way."""
    lasts, late = found.end_ns - found.start_ns, found.end_ns - done_ns
    outlasts = (at_work | found.awaits) & (late >= 0) & (done_ns > found.start_ns)
    chosen, awake = np.zeros(len(lasts), np.bool_), done_ns.copy()
    for place in range(int(found.place.max(initial=-1)) + 1):
        here = np.flatnonzero(found.place == place)
        which = here[outlasts[here]]
        awaits = len(which) > 0 and bool(found.awaits[here[0]])
        often = len(which) >= max(FEWEST, LEAST_RATIO * len(here))
        if awaits or (often and _end_with_the_work(late[which], lasts[which])):
            chosen[which] = True
            awake[which] += late[which].min()
        if awaits and np.percentile(late[which], PROMPT_PERCENTILE) <= MOST_LATE_NS:
            awake[which] = found.end_ns[which]
    return SilentWaits(found.thread[chosen], found.start_ns[chosen], awake[chosen])


def _end_with_the_work(late_ns: Ints, lasts_ns: Ints) -> bool:
    """Whether silences end soon after the work, and as surely as waking up does."""
    most = min(MOST_LATE_NS, MOST_LATE_RATIO * float(np.median(lasts_ns)))
    apart, unlike = (np.ptp(np.percentile(of, MOST_OF_THEM)) for of in (late_ns, lasts_ns))
    return bool(np.median(late_ns) <= most and apart <= MOST_SPREAD_RATIO * unlike + SCATTER_NS)


# ------------------------------------------------------------------------------------------------
# Silences and their places.


def _silences(host: Table, calls: Table, threads: Array, names: Names) -> _Silences:
    """Silences of threads in which they may be in something that no event shows."""
    thread, start, name = (
        np.concatenate((host[column], calls[column])).astype(np.int64)
        for column in ("thread", "start_ns", "name")
    )
    end = np.concatenate((host.end_ns, calls.end_ns))
    known = np.isin(name, _of_calls(names))  # what XLA does in there is its dispatch
    known[len(host) :] = True
    found = [_between_events(thread == one, start, end, known) for one in threads.tolist()]
    nothing = (np.zeros(0, np.int64),) * 4
    begin, finish, before, after = (np.concatenate(c) for c in zip(nothing, *found, strict=True))
    if not len(begin):
        return _Silences(begin, begin, begin, before, np.zeros(0, np.bool_))
    order = nesting_order(thread, start, end)
    nested = nest(thread[order], start[order], end[order])
    at = innermost(nested, thread[before], begin, finish)
    inside = np.where(at == NO_ROW, NO_ROW, order[at])
    says = np.isin(name, [i for i in range(len(names)) if names[i] == _AWAITS])
    awaits = says[before] | says[after]
    kept = awaits | np.append(_may_hide(host, names), np.ones(len(calls) + 1, np.bool_))[inside]
    spelt = _alike(np.append(name, NO_ROW), inside, before, names)
    _, place = distinct_rows(thread[before], spelt[inside], spelt[before], awaits.astype(np.int64))
    columns = (thread[before], begin, finish, place, awaits)
    return _Silences(*(column[kept] for column in columns))


def _alike(name: Ints, inside: Rows, before: Rows, names: Names) -> Ints:
    """The names of rows, one for those that differ in numbers alone: ranges count the steps."""
    alike, first = name.copy(), dict[str, int]()
    for one in distinct(name[np.concatenate((inside, before))]).tolist():
        if one != NO_ROW:
            alike[name == one] = first.setdefault(_NUMBER.sub("", names[one]), one)
    return alike


def _between_events(
    mine: Mask, start: Ints, end: Ints, known: Mask
) -> tuple[Ints, Ints, Rows, Rows]:
    """Between an event of a thread and the next: start, end, and the rows of both; but not inside
    of rows of which it is known what they do."""
    rows = np.flatnonzero(mine)
    when, row = np.concatenate((start[rows], end[rows])), np.concatenate((rows, rows))
    order = np.argsort(when, kind="stable")
    when, row = when[order], row[order]
    told = flatten(start[mine & known], end[mine & known])
    at = np.flatnonzero((np.diff(when) >= LEAST_SILENCE_NS) & ~contains(told, when[:-1]))
    return when[at], when[at + 1], row[at], row[at + 1]


def _may_hide(host: Table, names: Names) -> Mask:
    """Rows in which a thread may be in something that no event shows: functions of Python, ranges.

    All that a function of C does is its own: it sleeps, reads, sorts.
    """
    functions = [i for i in range(len(names)) if _FUNCTION.fullmatch(names[i])]
    ranges = np.isin(host["kind"], (HostKind.ANNOTATION, HostKind.MODULE))
    may: Mask = ranges | np.isin(host["name"], functions)
    return may


def _of_calls(names: Names) -> list[int]:
    """Names of the ranges in which XLA calls a compiled program."""
    return [i for i in range(len(names)) if names[i].startswith(_CALL_OF_A_PROGRAM)]
