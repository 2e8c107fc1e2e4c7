"""What a device, or a CPU, spends on one side alone of a choice that is made row by row.

Operations that only that side reads, as the compiled programs tell; what lies between two of them
and no program tells (copies in a graph), and the pauses there: a loop within the side.
"""

import numpy as np

from pinchpoint.analysis.device.compiled import compiled_rows
from pinchpoint.analysis.host.ancestry import above, parents
from pinchpoint.analysis.host.on_cpu import compiled_for_cpu
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps, per_step
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Table, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows

# Between two operations of one run of a loop: launches take microseconds, with a look at what a
# condition says some tens. What takes longer is between two runs, or has another cause.
LONGEST_GAP_NS = 100_000
_NONE = -1  # as the number of a name: no choice


@dataclass(frozen=True, eq=False)
class OneSide:
    """One side of one choice, a step."""

    at: str  # file and line of the choice
    rows: Rows  # of device_ops; none of programs on a CPU
    work_ns: int  # of the device or CPU
    idle_ns: int  # between them
    other_ns: int  # work for the other side alone
    turns: int | None  # of the loop that the choice itself is in, where the compiler knows it
    fair_ns: int = 0  # on a CPU, its work with that share of all pauses between operations


def one_sides(trace: Trace) -> list[OneSide]:
    """The heavier side of each choice; empty where no compiled program tells any."""
    ops, compiled = trace.device_ops, trace.compiled_ops
    if compiled is None or not compiled.known("chosen_at").any():
        return []
    if compiled_for_cpu(trace):
        return _on_cpu(trace, compiled)
    if ops is None:
        return []
    row = compiled_rows(trace)
    inside = device_ops_in_steps(trace)
    at = np.where(row >= 0, compiled.filled("chosen_at", _NONE)[row], _NONE)
    side = np.where(row >= 0, compiled.filled("chosen_side", 0)[row], 0)
    untold = (row < 0) | ~_told(compiled)[row]
    found = []
    for place in np.unique(at[inside & (at >= 0)]).tolist():
        spent = [_spent(ops, (at == place) & (side == which), untold, inside) for which in (1, 2)]
        lighter, heavier = sorted(spent, key=lambda one: one.work_ns)
        found.append(
            OneSide(
                trace.names[place],
                heavier.rows,
                round(per_step(trace, heavier.work_ns)),
                round(per_step(trace, heavier.idle_ns)),
                round(per_step(trace, lighter.work_ns)),
                _turns(trace, compiled, row[inside & (row >= 0)], trace.names[place]),
            )
        )
    return found


def _on_cpu(trace: Trace, compiled: Table) -> list[OneSide]:
    """Of programs on a CPU, whose operations come one after the other on any of its threads.

    Pauses of any length between two operations of a side are its own: it had no core there. Which
    operations lose their core is chance, more often those that compute longer.
    """
    here: Rows = np.flatnonzero(leaves(trace, compiled) & _in_steps(trace, compiled))
    here = here[np.argsort(compiled["start_ns"][here], kind="stable")]
    if not len(here):
        return []
    at = compiled.filled("chosen_at", _NONE)[here]
    side = compiled.filled("chosen_side", 0)[here]
    took = compiled["duration_ns"][here].astype(np.int64)
    reach: Ints = np.maximum.accumulate(compiled.end_ns[here])
    gap = np.maximum(compiled["start_ns"][here][1:] - reach[:-1], 0)
    whole_ns, found = int(took.sum()), []
    for place in np.unique(at[at >= 0]).tolist():
        spent = []
        for which in (1, 2):
            mine = (at == place) & (side == which)
            idle_ns = int(gap[mine[1:] & mine[:-1]].sum())
            spent.append((int(took[mine].sum()), idle_ns))
        (lighter_ns, _), (work_ns, idle_ns) = sorted(spent)
        found.append(
            OneSide(
                trace.names[place],
                np.zeros(0, np.intp),
                round(per_step(trace, work_ns)),
                round(per_step(trace, idle_ns)),
                round(per_step(trace, lighter_ns)),
                _turns(trace, compiled, here, trace.names[place]),
                round(per_step(trace, work_ns * (1 + int(gap.sum()) / max(whole_ns, 1)))),
            )
        )
    return found


def _in_steps(trace: Trace, compiled: Table) -> Mask:
    found: Mask = judged_steps(trace).step_of(compiled["start_ns"]) >= 0
    return found


def leaves(trace: Trace, compiled: Table) -> Mask:
    """Which of these hold no other one, as loops do: by the rows of the host that they are."""
    host, names = trace.host_ops, len(trace.names)
    assert host is not None
    theirs = host["start_ns"].astype(np.int64) * names + host["name"]
    order = np.argsort(theirs, kind="stable")
    wanted = compiled["start_ns"].astype(np.int64) * names + compiled["op"]
    place = np.minimum(np.searchsorted(theirs[order], wanted), len(host) - 1)
    row, same = order[place], theirs[order][place] == wanted
    mine = np.zeros(len(host), np.bool_)
    mine[row[same]] = True
    holds = np.zeros(len(host) + 1, np.bool_)
    holds[above(parents(host), mine)[mine]] = True
    found: Mask = same & ~holds[row]
    return found


@dataclass(frozen=True, eq=False)
class _Spent:
    rows: Rows
    work_ns: int
    idle_ns: int


def _told(compiled: Table) -> Mask:
    """Which compiled operations are instructions of a program that was recorded."""
    return compiled.known("source") | compiled.known("bytes") | compiled.known("loop")


def _spent(ops: Table, mine: Mask, untold: Mask, inside: Mask) -> _Spent:
    """Together with what is between two of them and not told."""
    idle_ns, taken = 0, mine & inside
    for device in np.unique(ops["device"][taken]).tolist():
        there: Rows = np.flatnonzero((ops["device"] == device) & inside)
        there = there[np.argsort(ops["start_ns"][there], kind="stable")]
        known = np.flatnonzero(~untold[there])
        place = np.arange(len(there))
        before = np.searchsorted(known, place, "right") - 1
        after = np.searchsorted(known, place, "left")
        of = np.append(mine[there][known], False)  # beyond both ends: nothing
        between = untold[there] & of[before] & of[after]
        taken[there[between]] = True
        idle_ns += _pauses_ns(ops, there, taken[there])
    rows = np.flatnonzero(taken)
    return _Spent(rows, int(ops["duration_ns"][rows].sum()), idle_ns)


def _pauses_ns(ops: Table, there: Rows, mine: Mask) -> int:
    reach: Ints = np.maximum.accumulate(ops.end_ns[there])
    gap = np.maximum(ops["start_ns"][there][1:] - reach[:-1], 0)
    return int(gap[mine[1:] & mine[:-1] & (gap <= LONGEST_GAP_NS)].sum())


def _turns(trace: Trace, compiled: Table, rows: Rows, place: str) -> int | None:
    """How often the choice is made in a run of the loop around it: its own operations are there."""
    known = rows[compiled.known("source")[rows] & compiled.known("iterations")[rows]]
    sources = compiled["source"][known] if len(known) else known
    lines = {s for s in np.unique(sources).tolist() if trace.names[s].split(",")[0] == place}
    here = known[np.isin(sources, sorted(lines))]
    here = here[~compiled.known("chosen_at")[here]]
    turns = np.unique(compiled["iterations"][here])
    return int(turns[0]) if len(turns) == 1 and turns[0] > 1 else None
