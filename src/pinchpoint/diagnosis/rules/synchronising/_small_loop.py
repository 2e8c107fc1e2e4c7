"""Reads of values that stand in a Python loop over small operations: one read in each turn."""

import numpy as np

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.host.source_lines import places
from pinchpoint.analysis.replay import Change, MergeDeviceOps, RemoveHostTime
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.analysis.tables.kernels import blocks_of_device_ops
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.evidence.device_work import Waiting
from pinchpoint.diagnosis.finding import Evidence
from pinchpoint.frozen import dataclass
from pinchpoint.trace import DeviceKind, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows, distinct, distinct_rows
from pinchpoint.trace.intervals import Intervals, flatten
from pinchpoint.trace.names import rows_named

# Turns a step: losses and metrics that are read one by one are fewer.
FEWEST_TURNS = 16
# Of one turn: a model's pass, even a small one, launches more, or products.
MOST_LAUNCHES = 32
SMALL_NS = 20_000  # an operator costs the host 5 to 20 µs: a longer kernel is work, not overhead
# What operators on whole tensors do as well; products and layers stay what they are.
_ON_TENSORS = (
    Category.ELEMENTWISE,
    Category.REDUCTION,
    Category.EMBEDDING,
    Category.DATA_MOVEMENT,
    Category.MEMSET,
    Category.SOFTMAX,
    Category.COPY_D2H,
    Category.COPY_D2D,
)
# Of turns that wait for the size of a selection: what is done for each group of rows (experts,
# classes), which grouped products and sorted rows do at once. Large ones win little by that, as
# replay knows from their grids and rooflines.
_FOR_GROUPS = (*_ON_TENSORS, Category.GEMM, Category.SORTING, Category.OTHER)
_PUTS_BACK = (  # results into rows of a tensor, in place or not
    "aten::index_add", "aten::index_put", "aten::_index_put_impl", "aten::index_copy",
    "aten::scatter", "aten::masked_scatter",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class SmallLoop:
    """Turns between one read and the next of a step, each of a few small operations."""

    rows: Rows  # of device_ops
    group: Ints  # 0..n-1 for each row: what one operator on whole tensors does
    turns: float  # a step
    launches: float  # of one turn
    later: Intervals  # of the host: all turns of each loop but its first
    own_weights: bool = False  # each turn multiplies its rows by what no other turn reads, and
    # puts the result back: no turn can need the one before it

    @property
    def words(self) -> str:
        """The end of the headline."""
        return f"; a Python loop of {self.turns:,.0f} turns, {self.launches:.0f} launches in each"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """How often it goes round, and with what."""
        return (
            Evidence("turns of the loop", round(self.turns, 1), "per step"),
            Evidence("launches in each", round(self.launches, 1), "count"),
        )

    @property
    def as_one_call(self) -> tuple[Change, ...]:
        """The first turn does the work of all."""
        merged = MergeDeviceOps(self.rows, self.group, self.own_weights)
        return (
            (merged, RemoveHostTime(self.later.start, self.later.end))
            if self.own_weights
            else (merged,)
        )


def small_loop(trace: Trace, reads: Waiting, *, of_groups: bool = False) -> SmallLoop | None:
    """The loop around the reads; None where fewer than half of them stand in one.

    What a step launches between one read and the next is a turn. Tokens of a generation need each
    other, and are none. ``of_groups``: each turn selects its rows, works on them, and asks for
    their number; these differ, and so do grids and kernels.
    """
    ops, calls, windows = trace.device_ops, trace.api_calls, judged_steps(trace)
    if ops is None or calls is None or not len(windows) or workload(trace).decodes:
        return None
    read_ns = np.sort(calls.end_ns[reads.api_calls])
    rows = np.flatnonzero(device_ops_in_steps(trace) & ops.known("api_call"))
    issued = calls["start_ns"][ops["api_call"][rows]]
    rows, issued = (column[np.argsort(issued, kind="stable")] for column in (rows, issued))
    step, after = windows.step_of(issued), np.searchsorted(read_ns, issued, "right")
    turn = np.unique(np.stack((step, after), axis=1), axis=0, return_inverse=True)[1].ravel()
    small = _in_small_turns(trace, rows, turn, of_groups=of_groups)
    if of_groups:  # what a step does before its first read is no turn
        small &= after > np.searchsorted(read_ns, windows.start_ns)[step]
    mine, its_turn = rows[small], turn[small]
    turns = len(distinct(its_turn)) / len(windows)
    if turns < max(FEWEST_TURNS, reads.count / 2):
        return None
    launches = len(mine) / (turns * len(windows))
    # Between loops are turns of other work: of the next layer, which needs this one's results.
    apart = ~np.isin(np.arange(int(turn.max()) + 1), its_turn)
    loop = np.cumsum(apart, dtype=np.int64)[its_turn]
    what = _operators(trace, mine)
    if not of_groups:
        what = np.stack((what, ops["name"][mine], blocks_of_device_ops(trace)[mine]), axis=1)
    group = _same_place(what.reshape(len(mine), -1), its_turn, loop if of_groups else step[small])
    own = of_groups and _own_weights(trace, mine, read_ns, turns)
    return SmallLoop(mine, group, turns, launches, _later_turns(trace, mine, its_turn, loop), own)


def _later_turns(trace: Trace, rows: Rows, turn: Ints, loop: Ints) -> Intervals:
    """Of each loop, from the first launch of its second turn to the last launch of all."""
    ops, calls = trace.device_ops, trace.api_calls
    assert ops is not None
    assert calls is not None
    call = ops["api_call"][rows]
    first = np.full(int(loop.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, loop, turn)
    at = turn > first[loop]
    begin, end = np.full(len(first), np.iinfo(np.int64).max), np.zeros(len(first), np.int64)
    np.minimum.at(begin, loop[at], calls["start_ns"][call[at]])
    np.maximum.at(end, loop[at], calls.end_ns[call[at]])
    several = begin < end
    return flatten(begin[several], end[several])


def _own_weights(trace: Trace, rows: Rows, read_ns: Ints, turns: float) -> bool:
    """Whether turns put rows back, and most of those that multiply do so in a module of their own,
    or after selecting one of many matrices."""
    host, windows = trace.host_ops, judged_steps(trace)
    if host is None or not len(host):
        return False
    operator = launched_calls(trace).operator[rows]
    products = operator[category_of_device_ops(trace)[rows] == Category.GEMM]
    puts = rows_named(trace, host, lambda name: name.startswith(_PUTS_BACK))
    if not len(products) or np.append(puts, False)[operator].sum() < FEWEST_TURNS * len(windows):
        return False
    if len(distinct(places(trace).module[products])) >= FEWEST_TURNS:
        return True
    start = host["start_ns"][distinct(products[products < len(host)])]
    selected = host["start_ns"][rows_named(trace, host, "aten::select".__eq__)]
    selecting = np.intersect1d(np.searchsorted(read_ns, start), np.searchsorted(read_ns, selected))
    return 2 * len(selecting) >= turns * len(windows)


def _in_small_turns(trace: Trace, rows: Rows, turn: Ints, *, of_groups: bool) -> Mask:
    """Whether each launch is in a turn of few launches, all of them small ones on tensors."""
    ops = trace.device_ops
    assert ops is not None
    kinds = _FOR_GROUPS if of_groups else _ON_TENSORS
    small = np.isin(category_of_device_ops(trace)[rows], kinds)
    if of_groups:
        small &= _has_usual_operators(trace, rows, turn)
    else:
        small &= ops["duration_ns"][rows] <= SMALL_NS
    launches = np.bincount(turn)
    kernels = np.bincount(turn, ops["kind"][rows] == DeviceKind.KERNEL)  # not copies alone
    whole = (np.bincount(turn, small) == launches) & (launches <= MOST_LAUNCHES) & (kernels > 0)
    found: Mask = whole[turn]
    return found


def _has_usual_operators(trace: Trace, rows: Rows, turn: Ints) -> Mask:
    """Whether each launch is in a turn of no more operators than usual: the last turn of a loop
    goes on to the next layer. A loop may have several waits a turn of its own, so each number that
    is at least a quarter as frequent as the most frequent one is usual."""
    pairs, _ = distinct_rows(turn, launched_calls(trace).operator[rows])
    operators = np.bincount(pairs[:, 0])
    often = np.bincount(operators[distinct(turn)])
    usual: Mask = operators[turn] <= np.flatnonzero(4 * often >= often.max())[-1]
    return usual


def _operators(trace: Trace, rows: Rows) -> Ints:
    """The name of the operator that launches each; -1 where there is none."""
    operator: Ints = launched_calls(trace).operator[rows]
    if trace.host_ops is None:
        return operator
    names = np.append(trace.host_ops["name"].astype(np.int64), -1)
    found: Ints = names[np.minimum(operator, len(trace.host_ops))]
    return found


def _same_place(what: Ints, turn: Ints, loop: Ints) -> Ints:
    """A number for launches of one loop that have the same place in their turns: the n-th that is
    the same. Turns may leave some out."""
    same = np.unique(what, axis=0, return_inverse=True)[1].ravel()
    order = np.lexsort((np.arange(len(turn)), same, turn))
    first = np.ones(len(turn), np.bool_)
    first[1:] = (np.diff(same[order]) != 0) | (np.diff(turn[order]) != 0)
    at = np.arange(len(turn))
    nth = np.empty(len(turn), np.int64)
    nth[order] = at - np.maximum.accumulate(np.where(first, at, 0))
    place = np.stack((loop, same, nth), axis=1)
    group: Ints = np.unique(place, axis=0, return_inverse=True)[1].ravel()
    return group
