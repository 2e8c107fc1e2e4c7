"""Functions whose kernels pass over memory again and again, against one pass over what they need.

The elementwise and reducing operators that one call of a function runs in a row need what comes
from outside, read once for each of their reductions, and what is used outside, written once;
tensors in between need not exist. So do those of the backward pass that belong to the call.
Operators in between that multiply, sort, gather, copy from the host or are unknown end a row; they
stay as they are. What an optimizer does is left out: its fused forms are another question. One pass
moves its bytes as fast as the fastest kernel of the row, and no faster than good kernels do.

Recordings have sizes of inputs and no names of tensors. A tensor counts as made inside if the row
has made one of its size before; of several inputs of one size, as many come from outside as were
not made or read before. Results are what nothing later in the row reads.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field

import numpy as np

from pinchpoint.analysis.causal.limits import KERNEL_START_NS, MEMORY_REACHED, VECTOR_REACHED
from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.costs.call import once_per_call
from pinchpoint.analysis.costs.pointwise import result_elements
from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.attribution import forward_rows
from pinchpoint.analysis.host.frames import Owner, owners
from pinchpoint.analysis.limits.roofs import Roofs, roofs
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.frozen import dataclass
from pinchpoint.trace import DeviceKind, MemoryKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask, Rows, distinct
from pinchpoint.trace.names import rows_named

# Different ones: a single one has a limit of its own, and a loop over one measures it.
FEWEST_OPERATORS = 2
# The same operators so often with another number: a loop over classes, thresholds, labels. Powers
# of a series and channels of a picture are fewer.
FEWEST_TURNS = 12
LONGEST_TURN = 64  # operators: more are a program and not the body of a loop
SAME_RATIO = 0.9  # of the operators of a loop follow its turn; the rest comes before and after


@dataclass(frozen=True, eq=False)
class Row:
    """Operators in a row of one call of a function, in one direction; times of this call."""

    function: int  # position in trace.names
    backward: bool
    rows: Rows  # of device_ops
    took_ns: int
    needs_ns: float  # for one pass
    outside_bytes: int  # read once from outside, and written for outside
    inside_bytes: int  # of the largest tensor that exists only inside
    turns: int  # of a loop in which only a number differs; 1 where there is none
    turn_operators: int  # in each of them


@once_per_trace
def rows_of_passes(trace: Trace) -> tuple[Row, ...]:
    """All rows of two operators and more in the judged steps, in order of the recording."""
    ops, known = trace.device_ops, roofs(trace)
    if ops is None or trace.host_ops is None or known is None or known.memory is None:
        return ()
    found = _operators(trace)
    calls = launched_calls(trace).calls
    remembered: dict[tuple[tuple[int, ...], bool], list[_Pass]] = {}
    out: list[Row] = []
    for begin, end in _with_neighbours(found, calls):
        key = (tuple(found.call[begin:end].tolist()), bool(found.backward[begin]))
        if key not in remembered:
            given = [calls[at] if 0 <= at < len(calls) else None for at in key[0]]
            remembered[key] = _passes(given, known)
        for one in remembered[key]:
            rows = np.concatenate(found.rows_of(begin + one.begin, begin + one.end))
            instance = int(found.instance[begin])
            out.append(_row(trace, one, rows, instance, backward=key[1]))
    return tuple(out)


def _row(trace: Trace, one: "_Pass", rows: Rows, instance: int, *, backward: bool) -> Row:
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    assert host is not None
    took = ops["duration_ns"][rows].astype(np.float64)
    of_operator = launched_calls(trace).operator[rows]
    each = np.bincount(np.cumsum(np.diff(of_operator, prepend=of_operator[0]) != 0), took)
    fastest = float((np.array(one.bytes) / np.maximum(each, 1.0)).max())  # bytes a nanosecond
    moving = one.moved_bytes / min(max(fastest, 1e-9), one.most_bytes_per_ns)
    return Row(
        function=int(host["name"][instance]),
        backward=backward,
        rows=rows,
        took_ns=round(float(took.sum())),
        needs_ns=max(moving, one.computing_ns, float(KERNEL_START_NS)),
        outside_bytes=one.outside_bytes,
        inside_bytes=one.inside_bytes,
        turns=one.turns,
        turn_operators=one.turn_operators,
    )


@dataclass(frozen=True, eq=False)
class _Operators:
    """Operators that launch in the judged steps, those of one call of a function in a row."""

    instance: Rows  # the row of the function's frame
    backward: Mask
    call: Ints  # which of the distinct calls it is
    rows: Rows  # of device_ops, of all of them in their own order
    first: Rows  # where in ``rows`` those of each operator begin
    count: Ints

    def rows_of(self, begin: int, end: int) -> list[Rows]:
        """Rows of ``device_ops`` of each of some operators."""
        spans = zip(self.first[begin:end].tolist(), self.count[begin:end].tolist(), strict=True)
        return [self.rows[first : first + count] for first, count in spans]


_UNKNOWN = -1  # no call that can be part of a pass


def own_functions(trace: Trace) -> Ints:
    """The function of the program that each device operation belongs to, by its name's number.

    Of the backward pass, that of the forward pass; -1 where there is none, and in optimizers.
    """
    host, calls = trace.host_ops, launched_calls(trace)
    if host is None:
        return np.full(len(calls.operator), -1, np.int64)
    forward = np.append(forward_rows(trace), len(host))[calls.operator]
    named = np.append(host["name"].astype(np.int64), -1)
    found: Ints = named[_frames(trace)[forward]]
    return found


def _frames(trace: Trace) -> Rows:
    """The row of the function around each row of ``host_ops``; none in optimizers."""
    host = trace.host_ops
    assert host is not None
    programs = np.isin(owners(trace), (Owner.USER, Owner.LIBRARY))
    frame = np.append(nearest(parents(host), programs), len(host))
    updates = rows_named(trace, host, lambda name: name.startswith("Optimizer.step"))
    frame[:-1][nearest(parents(host), updates) < len(host)] = len(host)
    return frame.astype(np.intp)


def _operators(trace: Trace) -> _Operators:
    host, ops, calls = trace.host_ops, trace.device_ops, launched_calls(trace)
    assert host is not None
    assert ops is not None
    none, frame = len(host), _frames(trace)
    forward = np.append(forward_rows(trace), none)[calls.operator]
    instance = frame[forward]
    mine = np.flatnonzero(
        device_ops_in_steps(trace) & (instance < none) & (ops["kind"] != DeviceKind.COLLECTIVE)
    )
    mine = mine[np.argsort(calls.operator[mine], kind="stable")]
    first = np.flatnonzero(np.diff(calls.operator[mine], prepend=-1))
    row = mine[first]
    operator = calls.operator[row]
    backward = (forward[row] != operator) & (frame[operator] == none)
    copies = (ops["kind"] == DeviceKind.COPY) & (ops.filled("from_memory", 0) != MemoryKind.DEVICE)
    copied = np.logical_or.reduceat(copies[mine], first) if len(first) else np.zeros(0, np.bool_)
    call = np.where(copied, _UNKNOWN, calls.which[row])
    count = np.diff(first, append=len(mine))
    # Calls of functions in the order of their first operators; one that calls another goes on after
    # it, and keeps its operators together.
    _, begins, group = np.unique(
        2 * instance[row] + backward, return_index=True, return_inverse=True
    )
    order = np.argsort(begins[group], kind="stable")
    return _Operators(
        instance[row][order], backward[order], call[order], mine, first[order], count[order]
    )


def _with_neighbours(
    found: _Operators, calls: tuple[LaunchedCall, ...]
) -> Iterator[tuple[int, int]]:
    """Calls of functions that run two such operators in a row, as spans of ``found``."""
    over = np.array([_passes_over(call) for call in calls] + [False], np.bool_)[found.call]
    ends = (np.diff(found.instance) != 0) | (np.diff(found.backward) != 0)
    edges = np.concatenate(([0], np.flatnonzero(ends) + 1, [len(over)]))
    pairs = np.flatnonzero(over[:-1] & over[1:] & ~ends)
    for at in distinct(np.searchsorted(edges, pairs, "right") - 1).tolist():
        yield int(edges[at]), int(edges[at + 1])


# ------------------------------------------------------------------------------------------------
# What one row of operators needs.


@dataclass(frozen=True)
class _Pass:
    """Operators ``begin`` to ``end`` of a call of a function."""

    begin: int
    end: int
    bytes: tuple[int, ...]  # that each operator moves now
    moved_bytes: int  # in one pass
    computing_ns: float
    most_bytes_per_ns: float  # that good kernels reach
    outside_bytes: int
    inside_bytes: int
    turns: int
    turn_operators: int


def _passes(calls: list[LaunchedCall | None], known: Roofs) -> list[_Pass]:
    found: list[_Pass] = []
    begin = 0
    for at, one in enumerate([*calls, None]):
        if one is not None and _passes_over(one):
            continue
        if len({c.call.name for c in calls[begin:at] if c is not None}) >= FEWEST_OPERATORS:
            found.append(_one_pass(begin, [c for c in calls[begin:at] if c is not None], known))
        begin = at + 1
    return found


@once_per_call
def _passes_over(of: LaunchedCall) -> bool:
    """Whether a call passes over its inputs, element by element or to reduce them."""
    if result_elements(of.call) is None or not of.call.dtypes:
        return False
    cost = cost_of(of.call)
    return cost is not None and cost.bytes is not None and not cost.matrix


def _one_pass(begin: int, calls: list[LaunchedCall], known: Roofs) -> _Pass:
    assert known.memory is not None
    tensors, flops, reductions = _Tensors(), 0, 0
    moves: list[int] = []
    for of in calls:
        made = result_elements(of.call)
        assert made is not None
        cost = cost_of(of.call)
        flops += (cost.flops or 0) if cost else 0
        moves.append((cost.bytes or 0) if cost else 0)
        read = list(_read(of))
        tensors.take(read)
        tensors.make(made, max((width for _, width in read), default=of.call.element_bytes(0)))
        reductions += bool(read) and max(size for size, _ in read) > made
    turn, turns = _turns(calls)
    # Each reduction may have to see its input before the next operator can go on; turns of a loop
    # that differ in a number can look at the same element at once.
    passes = 1 if turns > 1 else max(reductions, 1)
    moved = passes * tensors.outside_bytes + tensors.left_bytes
    double = any("double" in of.call.dtypes for of in calls)
    return _Pass(
        begin,
        begin + len(calls),
        tuple(moves),
        moved,
        _computing_ns(flops, "fp64" if double else "fp32", known),
        known.memory.per_s * (1.0 if known.memory.measured else MEMORY_REACHED) * 1e-9,
        tensors.outside_bytes + tensors.left_bytes,
        tensors.inside_bytes,
        turns,
        turn,
    )


def _computing_ns(flops: int, peak: str, known: Roofs) -> float:
    vector = known.compute.get(peak)
    return flops / (vector.per_s * VECTOR_REACHED) * 1e9 if vector else 0.0


def _read(of: LaunchedCall) -> Iterable[tuple[int, int]]:
    """Elements in memory and bytes an element of each input that a call reads."""
    writes_over = of.call.name.rstrip("_").removeprefix("aten::") in ("copy", "fill", "zero")
    for i in of.call.tensors()[1 if writes_over else 0 :]:
        shape, stride = of.call.shape(i) or (), of.stride(i)
        size = of.call.size(i)
        if stride is not None and len(stride) == len(shape):  # what is expanded lies there once
            size = int(np.prod([n for n, s in zip(shape, stride, strict=True) if s] or [1]))
        yield size, of.call.element_bytes(i)


@dataclass
class _Tensors:
    """The tensors of one row of operators, told by their sizes alone."""

    outside_bytes: int = 0  # read from outside
    inside_bytes: int = 0  # of the largest that is read after it was made
    seen: Counter[int] = field(default_factory=Counter)  # of each size: made or read so far
    unread: dict[int, list[int]] = field(default_factory=dict)  # sizes: bytes of each, not read yet

    def take(self, read: list[tuple[int, int]]) -> None:
        """An operator reads these at once."""
        for size, many in Counter(size for size, _ in read).items():
            width = max(w for s, w in read if s == size)
            new = max(many - self.seen[size], 0)
            self.outside_bytes += new * size * width
            self.seen[size] += new
            for _ in range(min(many - new, len(self.unread.get(size, ())))):
                self.inside_bytes = max(self.inside_bytes, self.unread[size].pop())

    def make(self, size: int, width: int) -> None:
        """An operator makes one."""
        self.seen[size] += 1
        self.unread.setdefault(size, []).append(size * width)

    @property
    def left_bytes(self) -> int:
        """What nothing has read."""
        return sum(map(sum, self.unread.values()))


def _turns(calls: list[LaunchedCall]) -> tuple[int, int]:
    """Operators in a turn, and turns, of a loop in which only a number differs; else (all, 1)."""
    names = np.unique([f"{c.call.name} {c.call.shapes}" for c in calls], return_inverse=True)[1]
    for period in range(1, min(LONGEST_TURN, len(calls) // FEWEST_TURNS) + 1):
        same = names[period:] == names[:-period]
        if same.mean() >= SAME_RATIO and _a_number_differs(calls, same, period):
            return period, len(calls) // period
    return len(calls), 1


def _a_number_differs(calls: list[LaunchedCall], same: Ints, period: int) -> bool:
    """Whether each turn has an operator whose scalar is another one than a turn before."""
    differs = [
        same[i] and calls[i].call.values != calls[i + period].call.values for i in range(len(same))
    ]
    return bool(sum(differs) >= SAME_RATIO * len(same) / period)
