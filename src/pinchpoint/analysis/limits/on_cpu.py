"""What operators of a program on a CPU take, and what the slowest machine would take for them.

What a CPU can do is in no data sheet by its name: it depends on the cores that the program may use,
their neighbours and their memory. So the bound is that of one core of a slow server. An operator
far from that is far from what any machine needs.
"""

import numpy as np

from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.host.ancestry import subtree_sums
from pinchpoint.analysis.host.input_arguments import is_sparse
from pinchpoint.analysis.host.lent_inputs import with_inputs
from pinchpoint.analysis.host.on_cpu import computes_on_cpu, cpu_operators
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step, rows_in_steps
from pinchpoint.analysis.work.operator_work import NOT_KNOWN, call_of
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Ints, Mask, Rows, distinct_rows

# One core of a server of 2013 copies 5 to 10 GB/s (STREAM, one thread), and computes 8 float32
# numbers at 2.5 GHz or faster in vectors: much less is left for what is read and written apart.
LEAST_BYTES_PER_S = 4e9
LEAST_FLOP_PER_S = 8e9  # of the 40 of such vectors: what is no product fills few of them
MOST_UNKNOWN = 100  # names may be as many as calls, and of those nothing but their time is said
START_NS = 20_000  # calling an operator with the profiler on takes 2 to 20 us


@dataclass(frozen=True, eq=False)
class CpuPiece:
    """All calls of one operator in the judged steps."""

    name: str
    rows: Rows  # of host_ops
    ns_per_step: int  # without the operators inside
    fastest_ns_per_step: int  # if each took as long as the fastest with the same inputs
    calls: float  # a step
    limit_ns: int | None  # a step, on a slow machine; None where it is not known for most of it
    shapes: str | None  # of the inputs of the calls that take most; None where not recorded


@once_per_trace
def cpu_pieces(trace: Trace) -> tuple[CpuPiece, ...]:
    """Operators by name, most time first; none where the program has a device.

    Of those whose shapes and limit are not known, the ``MOST_UNKNOWN`` longest. Inputs that only
    another window of the run has are read there.
    """
    trace = with_inputs(trace)
    host = trace.host_ops
    if host is None or not computes_on_cpu(trace) or not len(judged_steps(trace)):
        return ()
    own = cpu_operators(trace)
    rows = np.flatnonzero(own.operator & (own.own_ns > 0) & rows_in_steps(trace, host))
    if not len(rows):
        return ()
    columns = [host["name"][rows].astype(np.int64)]
    columns += [host.filled(c, NOT_KNOWN)[rows] for c in ("shapes", "dtypes", "values", "strides")]
    distinct, which = distinct_rows(*columns)
    limit_ns = np.full(len(distinct), np.nan)
    for row in np.flatnonzero(distinct[:, 1] != NOT_KNOWN).tolist():
        limit_ns[row] = _limit_ns(trace.names, *distinct[row].tolist())
    needs = limit_ns[which]
    took, a_step = own.own_ns[rows], max(len(judged_steps(trace)), 1)
    fastest = _fastest(which, took, ~np.isnan(limit_ns))
    order = np.argsort(columns[0], kind="stable")
    ends = np.flatnonzero(np.diff(columns[0][order], append=-1)) + 1
    starts = np.append(0, ends[:-1])
    ns_per_step = np.round(np.add.reduceat(took[order], starts) / a_step).astype(np.int64)
    limited = np.add.reduceat(~np.isnan(needs[order]), starts, dtype=np.int64) > 0
    took_of = np.bincount(which, took).astype(np.float64)
    shapes = distinct[_most_of_each(distinct[:, 0], took_of), 1]
    found = []
    for number in _told(ns_per_step, limited | (shapes != NOT_KNOWN)).tolist():
        mine = order[starts[number] : ends[number]]
        found.append(
            CpuPiece(
                trace.names[columns[0][mine[0]]],
                rows[mine],
                int(ns_per_step[number]),
                round(fastest[mine].sum() / a_step),
                len(mine) / a_step,
                _together(trace, needs[mine], took[mine]) if limited[number] else None,
                None if shapes[number] == NOT_KNOWN else trace.names[shapes[number]],
            )
        )
    return tuple(sorted(found, key=lambda piece: -piece.ns_per_step))


@once_per_trace
def cpu_limits_ns(trace: Trace) -> Floats:
    """For each row of ``host_ops`` what a slow machine takes for it, without the operators inside;
    NaN where that is not known, and of rows that are no operator or in no judged step."""
    host = trace.host_ops
    assert host is not None
    out = np.full(len(host), np.nan)
    with_shapes = with_inputs(trace)  # which has names of its own
    shown, own = with_shapes.host_ops, cpu_operators(trace)
    assert shown is not None
    rows = np.flatnonzero(own.operator & (own.own_ns > 0) & rows_in_steps(trace, host))
    columns = [shown["name"][rows].astype(np.int64)]
    columns += [shown.filled(c, NOT_KNOWN)[rows] for c in ("shapes", "dtypes", "values", "strides")]
    distinct, which = distinct_rows(*columns)
    limits = [_limit_ns(with_shapes.names, *one) for one in distinct.tolist()]
    out[rows] = np.array(limits, np.float64)[which]
    return out


def _fastest(which: Rows, took: Ints, alike: Mask) -> Ints:
    """For each call, the shortest of those with its inputs; itself where they are not known.

    What the machine gives to other programs meanwhile makes some calls longer, and none shorter.
    """
    least = np.full(len(alike), np.iinfo(np.int64).max)
    np.minimum.at(least, which, took)
    found: Ints = np.where(alike[which], least[which], took)
    return found


# All calls over as many of the fastest with their inputs: 1.3 where the cores were free, 2.4 to 17
# at load 11 on 2 cores.
SLOWED_RATIO = 1.5


# Of the limit of a slow machine: healthy products take 0.04 of it, elementwise work and
# convolutions 0.1 to 0.8, transforms of a fast length 0.3.
FAR_RATIO = 3.0


@once_per_trace
def _when_free(trace: Trace) -> tuple[Ints, Ints]:
    """For each row of ``host_ops``, what it takes by itself: as the fastest of its operator with
    the same inputs did, and not more than a few times what its work needs on a slow core."""
    host, own = trace.host_ops, cpu_operators(trace)
    assert host is not None
    with_shapes = with_inputs(trace)  # which has names of its own
    shown = with_shapes.host_ops
    assert shown is not None
    rows = np.flatnonzero(own.operator & (own.own_ns > 0) & rows_in_steps(trace, host))
    columns = [shown["name"][rows].astype(np.int64)]
    columns += [shown.filled(c, NOT_KNOWN)[rows] for c in ("shapes", "dtypes", "values", "strides")]
    distinct, which = distinct_rows(*columns)
    limit_ns = np.full(len(distinct), np.inf)
    for row in np.flatnonzero(distinct[:, 1] != NOT_KNOWN).tolist():
        limit = _limit_ns(with_shapes.names, *distinct[row].tolist())
        limit_ns[row] = np.inf if np.isnan(limit) else FAR_RATIO * limit
    fastest, least = own.own_ns.copy(), own.own_ns.copy()
    fastest[rows] = _fastest(which, own.own_ns[rows], distinct[:, 1] != NOT_KNOWN)
    least[rows] = np.minimum(fastest[rows], limit_ns[which]).astype(np.int64)
    return fastest, least


@once_per_trace
def held_up_ns(trace: Trace) -> tuple[float, float] | None:
    """What operators took in a judged step, and what they would have if each had been as quick as
    the fastest with the same inputs; None without operators or their inputs."""
    host, own = trace.host_ops, cpu_operators(trace)
    if host is None or not computes_on_cpu(trace) or not len(judged_steps(trace)):
        return None
    shown = with_inputs(trace).host_ops
    if shown is None or not shown.known("shapes").any():
        return None
    every, fastest = own.operator & rows_in_steps(trace, host), _when_free(trace)[0]
    took, least = (per_step(trace, float(ns[every].sum())) for ns in (own.own_ns, fastest))
    return took, least


def fair_ratio(trace: Trace, inside: Mask, *, scarce: bool) -> float:
    """What part of their time these rows would have of the step if no call had waited for a core.

    1 where the cores were free: neither ``scarce``, as the run measured it, nor as its calls tell.
    Where others had them, a call of microseconds that waited for its turn is recorded with
    milliseconds, and which calls these are is chance.
    """
    own, (fastest, least) = cpu_operators(trace), _when_free(trace)
    assert trace.host_ops is not None
    every = own.operator & rows_in_steps(trace, trace.host_ops)
    took, mine = int(own.own_ns[every].sum()), int(own.own_ns[every & inside].sum())
    if not mine or not (scarce or took >= SLOWED_RATIO * fastest[every].sum()):
        return 1.0
    slowed = took / max(int(least[every].sum()), 1)
    return min(slowed * int(least[every & inside].sum()) / mine, 1.0)


@once_per_trace
def held_up(trace: Trace) -> "Waits | None":
    """How long operators waited for their cores, as a sum over the time of the recording; None
    where the cores were free, by what the run measured and as the calls tell.

    What remains of them is what they take by themselves. Python on one thread waits for its turn,
    too, yet not for the last of several threads in each of a thousand operators.
    """
    host = trace.host_ops
    if host is None or not computes_on_cpu(trace):
        return None
    own, (fastest, least) = cpu_operators(trace), _when_free(trace)
    every = own.operator & rows_in_steps(trace, host)
    took = int(own.own_ns[every].sum())
    scarce = trace.run is not None and bool(trace.run.disturbed)
    if not (scarce or took >= SLOWED_RATIO * fastest[every].sum()):
        return None
    waited = subtree_sums(own.parent, np.where(every, own.own_ns - least, 0))
    rows = np.flatnonzero(own.called & every & (waited > 0))
    rows = rows[np.argsort(host["start_ns"][rows], kind="stable")]
    if not len(rows):
        return None
    share = np.minimum(waited[rows] / np.maximum(host["duration_ns"][rows], 1), 1.0)
    return Waits(host["start_ns"][rows], host.end_ns[rows], share)


@dataclass(frozen=True, eq=False)
class Waits:
    """Stretches of time, none within another, and the part of each that was spent waiting."""

    start_ns: Ints
    end_ns: Ints
    share: Floats

    def within(self, start_ns: Ints, end_ns: Ints) -> float:
        """Waiting in these stretches together."""
        return float((self._until(end_ns) - self._until(start_ns)).sum())

    def _until(self, at_ns: Ints) -> Floats:
        waits = self.share * (self.end_ns - self.start_ns)
        before = np.append(0.0, np.cumsum(waits))
        row = np.searchsorted(self.start_ns, at_ns, "right") - 1
        last = np.maximum(row, 0)
        inside = np.minimum(at_ns, self.end_ns[last]) - self.start_ns[last]
        found: Floats = np.where(row >= 0, before[last] + self.share[last] * inside, 0.0)
        return found


def _told(ns_per_step: Ints, known: Mask) -> Rows:
    """Operators of which something is known, and the longest of the others, in their order."""
    longest_first = np.argsort(-ns_per_step, kind="stable")
    others = longest_first[~known[longest_first]][:MOST_UNKNOWN]
    return np.sort(np.append(np.flatnonzero(known), others))


def _most_of_each(name: Ints, weight: Floats) -> Rows:
    """For each name, in order, its first row of most weight."""
    order = np.lexsort((-weight, name))
    firsts: Rows = order[np.diff(name[order], prepend=-1) != 0]
    return firsts


MOSTLY_RATIO = 0.9  # of the time: so much must have a limit, or a sum of limits says nothing


def _together(trace: Trace, needs: Floats, took: Rows) -> int | None:
    known = ~np.isnan(needs)
    if took[known].sum() < MOSTLY_RATIO * took.sum():
        return None
    return round(per_step(trace, int(np.where(known, needs, took).sum())))


def _limit_ns(
    names: tuple[str, ...], name: int, shapes: int, dtypes: int, values: int, strides: int
) -> float:
    """NaN where it is not known, as of sparse matrices, whose shapes do not say what they hold."""
    call = call_of(names, name, shapes, dtypes, values)
    if NOT_KNOWN not in (shapes, strides) and is_sparse(names[shapes], names[strides]):
        return float("nan")
    cost = cost_of(call) if call is not None else None
    if cost is None or (cost.flops is None and cost.bytes is None):
        return float("nan")
    moving = (cost.bytes or 0) / LEAST_BYTES_PER_S
    return max(moving, (cost.flops or 0) / LEAST_FLOP_PER_S) * 1e9 + START_NS
