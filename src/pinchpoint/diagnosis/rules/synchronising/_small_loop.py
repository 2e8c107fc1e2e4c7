"""Reads of values that stand in a Python loop over small operations: one read in each turn."""

import numpy as np

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.replay import Change, MergeDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.analysis.tables.kernels import blocks_of_device_ops
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.evidence.device_work import Waiting
from pinchpoint.diagnosis.finding import Evidence
from pinchpoint.frozen import dataclass
from pinchpoint.trace import DeviceKind, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows

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
# classes), which grouped products and sorted rows do at once.
FOR_GROUPS = (*_ON_TENSORS, Category.GEMM, Category.SORTING, Category.OTHER)


@dataclass(frozen=True, eq=False)
class SmallLoop:
    """Turns between one read and the next of a step, each of a few small operations."""

    rows: Rows  # of device_ops
    group: Ints  # 0..n-1 for each row: what one operator on whole tensors does
    turns: float  # a step
    launches: float  # of one turn

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
        return (MergeDeviceOps(self.rows, self.group),)


def small_loop(
    trace: Trace, reads: Waiting, kinds: tuple[Category, ...] = _ON_TENSORS
) -> SmallLoop | None:
    """The loop around the reads; None where fewer than half of them stand in one.

    What a step launches between one read and the next is a turn. Tokens of a generation need each
    other, and are none.
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
    small = _in_small_turns(trace, rows, turn, kinds)
    turns = len(np.unique(turn[small])) / len(windows)
    if turns < max(FEWEST_TURNS, reads.count / 2):
        return None
    launches = int(small.sum()) / (turns * len(windows))
    group = _alike(trace, rows[small], turn[small], step[small])
    return SmallLoop(rows[small], group, turns, launches)


def _in_small_turns(trace: Trace, rows: Rows, turn: Ints, kinds: tuple[Category, ...]) -> Mask:
    """Whether each launch is in a turn of few launches, all of them small ones of these kinds."""
    ops = trace.device_ops
    assert ops is not None
    small = np.isin(category_of_device_ops(trace)[rows], kinds)
    small &= ops["duration_ns"][rows] <= SMALL_NS
    launches = np.bincount(turn)
    kernels = np.bincount(turn, ops["kind"][rows] == DeviceKind.KERNEL)  # not copies alone
    whole = (np.bincount(turn, small) == launches) & (launches <= MOST_LAUNCHES) & (kernels > 0)
    found: Mask = whole[turn]
    return found


def _alike(trace: Trace, rows: Rows, turn: Ints, step: Ints) -> Ints:
    """A number for launches of one step that have the same place in their turns: the n-th of an
    operator, kernel and grid. Turns may leave some out."""
    ops = trace.device_ops
    assert ops is not None
    operator, names = launched_calls(trace).operator[rows], ops["name"][rows]
    if trace.host_ops is not None:
        operator = np.append(trace.host_ops["name"], -1)[np.minimum(operator, len(trace.host_ops))]
    what = np.stack((operator, names, blocks_of_device_ops(trace)[rows]), axis=1).astype(np.int64)
    same = np.unique(what, axis=0, return_inverse=True)[1].ravel()
    order = np.lexsort((np.arange(len(rows)), same, turn))
    first = np.ones(len(rows), np.bool_)
    first[1:] = (np.diff(same[order]) != 0) | (np.diff(turn[order]) != 0)
    at = np.arange(len(rows))
    nth = np.empty(len(rows), np.int64)
    nth[order] = at - np.maximum.accumulate(np.where(first, at, 0))
    place = np.stack((step, same, nth), axis=1)
    group: Ints = np.unique(place, axis=0, return_inverse=True)[1].ravel()
    return group
