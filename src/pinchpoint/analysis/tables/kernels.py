"""Which kernels the device spends its time in: one row a distinct kernel name."""

import math
from contextlib import suppress

import msgspec
import numpy as np

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.device.kernel_precision import (
    UNKNOWN,
    MatrixUnits,
    Precision,
    precision_of_device_ops,
)
from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.analysis.host.graph_replays import of_operators
from pinchpoint.analysis.statistics import spread
from pinchpoint.frozen import dataclass
from pinchpoint.hardware import find_spec
from pinchpoint.trace import Device, DeviceKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Codes, Ints, Mask, Rows

_SIZES, _MANY_SIZES = msgspec.json.Decoder(list[int]), msgspec.json.Decoder(list[list[int]])
LAUNCHERS_SHOWN = 3  # enough to tell one dominant operator from several


@dataclass(frozen=True)
class KernelRow:
    """All runs of one kernel. Category, format and units are those with most time."""

    name: str
    short_name: str
    category: Category
    precision: Precision | None
    matrix_units: bool | None
    calls: int
    total_ns: int
    min_ns: int
    median_ns: int
    p90_ns: int
    max_ns: int
    blocks: int | None  # median of a run; None where the file gives no grid
    blocks_per_multiprocessor: float | None  # below 1 some multiprocessors get no work
    operators: tuple[str, ...]  # that launch it, most time first
    occupancy_ratio: float | None = None  # estimated, mean by time; None where the file has none

    @property
    def mean_ns(self) -> float:
        """Mean time of a run."""
        return self.total_ns / self.calls


@dataclass(frozen=True)
class Kernels:
    """The kernel table, most time first."""

    rows: tuple[KernelRow, ...]
    device_ns: int  # sum of durations of all kernels counted

    def share(self, row: KernelRow) -> float:
        """Time of the kernel as a share of that of all kernels."""
        return row.total_ns / self.device_ns if self.device_ns else 0.0


def kernels(trace: Trace, rows: Mask | None = None) -> Kernels:
    """The table over the kernels and collectives in the mask ``rows`` of ``device_ops``."""
    ops = trace.device_ops
    if ops is None or not len(ops):
        return Kernels((), 0)
    counted = np.isin(ops["kind"], (DeviceKind.KERNEL, DeviceKind.COLLECTIVE))
    if rows is not None:
        counted = counted & rows
    runs = np.flatnonzero(counted)
    runs = runs[np.argsort(ops["name"][runs], kind="stable")]  # groups become contiguous
    edges = np.flatnonzero(np.diff(ops["name"][runs], prepend=-1))
    groups = np.split(runs, edges[1:]) if len(runs) else []
    facts = _Facts.of(trace, ops)
    table = sorted((_row(trace, ops, facts, group) for group in groups), key=lambda r: -r.total_ns)
    return Kernels(tuple(table), int(ops["duration_ns"][runs].sum()))


@dataclass(frozen=True)
class _Facts:
    """What rows are described by, one element a row of ``device_ops``."""

    category: Codes
    precision: Codes
    units: Codes
    blocks: Rows  # 0 where not known: a kernel has at least one
    launcher: Rows  # position in the trace's names, len(names) where not known
    multiprocessors: dict[int, int]

    @classmethod
    def of(cls, trace: Trace, ops: Table) -> "_Facts":
        formats = precision_of_device_ops(trace)
        return cls(
            category_of_device_ops(trace),
            formats.precision,
            formats.matrix_units,
            blocks_of_device_ops(trace),
            _launchers(trace),
            {d.number: count for d in trace.devices if (count := _multiprocessors(d))},
        )


def _row(trace: Trace, ops: Table, facts: _Facts, group: Rows) -> KernelRow:
    lasted = ops["duration_ns"][group]
    name = trace.names[ops["name"][group[0]]]
    times = spread(lasted)
    assert times is not None
    precision = _heaviest(facts.precision[group], lasted)
    units = _heaviest(facts.units[group], lasted)
    blocks = facts.blocks[group]
    known = blocks > 0
    typical = int(np.median(blocks[known])) if known.any() else None
    multiprocessors = facts.multiprocessors.get(int(ops["device"][group[0]]))
    estimated = group[ops.known("occupancy_percent")[group]]
    weights = np.maximum(ops["duration_ns"][estimated], 1)
    return KernelRow(
        name=name,
        short_name=short_kernel_name(name),
        category=Category(_heaviest(facts.category[group], lasted)),
        precision=None if precision == UNKNOWN else Precision(precision),
        matrix_units=None if units == UNKNOWN else units == MatrixUnits.YES,
        calls=len(group),
        total_ns=int(lasted.sum()),
        min_ns=times.least,
        median_ns=times.median,
        p90_ns=times.p90,
        max_ns=times.most,
        blocks=typical,
        blocks_per_multiprocessor=typical / multiprocessors
        if typical and multiprocessors
        else None,
        operators=_top_launchers(trace, facts.launcher[group], lasted),
        occupancy_ratio=float(np.average(ops["occupancy_percent"][estimated], weights=weights))
        / 100
        if len(estimated)
        else None,
    )


def _multiprocessors(device: Device) -> int | None:
    """As the recording says, or the data sheet."""
    spec = find_spec(device.name)
    return device.multiprocessors or (None if spec is None else spec.multiprocessors)


def _heaviest(codes: Codes, lasted: Ints) -> int:
    """The code with most time."""
    if codes[0] == codes[-1] and np.all(codes == codes[0]):
        return int(codes[0])
    return int(np.argmax(np.bincount(codes, weights=lasted)))


def _top_launchers(trace: Trace, launcher: Rows, lasted: Ints) -> tuple[str, ...]:
    which, group = np.unique(launcher, return_inverse=True)
    weight = np.bincount(group, weights=lasted)
    order = np.argsort(-weight, kind="stable")
    known = [int(which[i]) for i in order if which[i] < len(trace.names)]
    return tuple(trace.names[position] for position in known[:LAUNCHERS_SHOWN])


def _launchers(trace: Trace) -> Rows:
    def names(operators: Table) -> Rows:
        return operators["name"].astype(np.int64)

    found: Rows = of_operators(trace, names, len(trace.names)).astype(np.int64)
    return found


@once_per_trace
def blocks_of_device_ops(trace: Trace) -> Rows:
    """How many blocks each row of ``device_ops`` was launched with; 0 where that is not known."""
    ops = trace.device_ops
    if ops is None:
        return np.zeros(0, np.int64)
    known = ops.known("grid")
    return np.where(known, volumes(trace)[np.where(known, ops["grid"], 0)], 0)


@once_per_trace
def volumes(trace: Trace) -> Ints:
    """Blocks or threads that each name says which is the grid or block of a row of ``device_ops``;
    0 of the others, and where it is no size."""
    out = np.zeros(len(trace.names), np.int64)
    ops = trace.device_ops
    if ops is not None:
        used = np.concatenate([ops[column][ops.known(column)] for column in ("grid", "block")])
        names = np.flatnonzero(np.bincount(used))
        out[names] = [_volume(size) for size in _sizes([trace.names[i] for i in names.tolist()])]
    return out


def _sizes(texts: list[str]) -> list[list[int]]:
    """What JSON texts list; nothing where one is no list of whole numbers.

    Together where each is one list, as a launch with another grid each time has thousands.
    """
    if all(t[:1] == "[" and t[-1:] == "]" and t.count("[") == t.count("]") == 1 for t in texts):
        with suppress(msgspec.DecodeError, UnicodeError):
            return _MANY_SIZES.decode(f"[{','.join(texts)}]")
    return [_size(text) for text in texts]


def _size(text: str) -> list[int]:
    try:
        return _SIZES.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return []


def _volume(sizes: list[int]) -> int:
    if not sizes or min(sizes) <= 0 or max(sizes) >= 1 << 31:
        return 0
    return min(math.prod(sizes), 2**63 - 1)
