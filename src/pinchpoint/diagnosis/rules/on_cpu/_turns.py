"""What of a loop needs the turn before it, as the watched steps of a run showed."""

import numpy as np

from pinchpoint.analysis.host.ancestry import subtree_sums, within_rows
from pinchpoint.analysis.host.on_cpu import cpu_operators
from pinchpoint.diagnosis.evidence.vain_work import rows_of, run_by_dispatcher
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.names import rows_named

# Of the time of a loop's operators, that were watched: the rest may be of views and conversions.
KNOWN_RATIO = 0.8
# Operators that compute one turn of a recurrence for which one call of all turns is there.
CELLS = ("aten::lstm_cell", "aten::gru_cell", "aten::rnn_tanh_cell", "aten::rnn_relu_cell")


@dataclass(frozen=True, eq=False)
class Turns:
    """Of rows of ``host_ops``; each has one element more, for no row."""

    known: bool  # whether nearly all of the loop was seen
    chained: Mask  # a later turn needs what it gives, through more than sums
    free: Mask  # nothing within it is chained or unseen, and something is known to be free
    in_cells: bool  # all that is chained is in cells that are one call for all turns
    on_host: bool = False  # seen, but the host reads tensors in it: a turn may need what it read


def needed_turns(trace: Trace, loop: Rows) -> Turns:
    """What these outermost rows of a loop need of each other; nothing is known without a run."""
    host, found = trace.host_ops, _by_way(trace)
    assert host is not None
    calls = cpu_operators(trace)
    none = np.zeros(len(host) + 1, np.bool_)
    if found is None:
        return Turns(known=False, chained=none, free=none, in_cells=False)
    chain, seen, read = found
    inside = within_rows(calls.parent, loop)[:-1]
    computes = rows_named(trace, host, frozenset(_computing(trace)).__contains__)
    dispatched = run_by_dispatcher(trace) & inside & computes
    took = np.where(dispatched, host["duration_ns"], 0)
    enough = KNOWN_RATIO * max(int(took.sum()), 1)
    known, on_host = took[seen].sum() >= enough, took[read].sum() >= enough
    chains = subtree_sums(calls.parent, (chain & inside).astype(np.int64)) > 0
    unseen = subtree_sums(calls.parent, (dispatched & ~seen).astype(np.int64)) > 0
    some = subtree_sums(calls.parent, (dispatched & seen & ~chain).astype(np.int64)) > 0
    mixed = chains & (host["kind"] == HostKind.OPERATOR)  # nobody takes a part out of an operator
    free = (
        inside & some & ~chains & ~unseen & ~within_rows(calls.parent, np.flatnonzero(mixed))[:-1]
    )
    cells = rows_named(trace, host, CELLS.__contains__)
    in_cells = within_rows(calls.parent, np.flatnonzero(cells))[:-1]
    return Turns(
        bool(known),
        np.append(chains & inside, False),
        np.append(free, False),
        bool(in_cells[chain].all()) and bool(cells.any()),
        bool(on_host),
    )


def _computing(trace: Trace) -> tuple[str, ...]:
    values = trace.run.values if trace.run else None
    return () if values is None else values.operators


@once_per_trace
def _by_way(trace: Trace) -> tuple[Mask, Mask, Mask] | None:
    """Operators that are chained, all of which that was seen, and those in loops in which the host
    reads; None where nothing was."""
    host, values = trace.host_ops, trace.run.values if trace.run else None
    if host is None or values is None or not values.loops or not host.known("shapes").any():
        return None
    chain, seen, read = np.zeros((3, len(host)), np.bool_)
    for loop in values.loops:
        if loop.way == "unseen":
            read[rows_of(trace, loop.operations)] = True
            continue
        seen[rows_of(trace, loop.operations)] = True
        if loop.way == "chain":
            chain[rows_of(trace, loop.carried)] = True
    return chain, seen, read


def known_again(trace: Trace) -> Mask:
    """Rows that hold work which `repeated-work` tells of."""
    host, values = trace.host_ops, trace.run.values if trace.run else None
    assert host is not None
    again = np.zeros(len(host), np.int64)
    for work in (values.work or ()) if values is not None else ():
        if work.kind in ("step", "within"):
            again[rows_of(trace, work.operations)] = 1
    found: Mask = subtree_sums(cpu_operators(trace).parent, again) > 0
    return found
