"""The roofline: each piece of work against the roof that its intensity puts it under.

A point is an operator (FLOPs and least bytes from shapes, time from the trace) or a launch profiled
by ncu (everything counted by the hardware, roofs at the clock that ncu held). Below the machine
balance a point can at best run at memory speed, above it at compute speed: that is ``bound``. How
near it comes to its roof is ``roof_ratio``; a point far below both roofs waits for something else.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from pinchpoint.analysis.limits.counter_facts import KernelFacts, kernel_facts
from pinchpoint.analysis.limits.counters import KernelLaunch, kernel_launches
from pinchpoint.analysis.limits.roofs import Roofs, at_clock, roofs, spec_of
from pinchpoint.analysis.work.operator_work import NOT_KNOWN, OperatorWork, operator_work, peak_type
from pinchpoint.frozen import dataclass
from pinchpoint.hardware import find_spec
from pinchpoint.trace import DeviceKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Rows, distinct_rows

Bound = Literal["memory", "compute"]

FAR_FROM_BOTH_ROOFS = 0.30  # below this share of its roof, neither memory nor compute is the limit
SOL_UNDECIDED_POINTS = 10.0  # NVIDIA's SpeedOfLight rule calls a smaller difference balanced


@dataclass(frozen=True)
class Level:
    """A point at one level of the memory: bytes moved there and that level's bandwidth."""

    name: str  # device memory, L2
    bytes: float
    peak_bytes_per_s: float | None
    intensity: float | None  # FLOP per byte


@dataclass(frozen=True)
class Point:
    """One operator or launch on the roofline; None where it cannot be known."""

    name: str
    kind: Literal["operator", "launch"]
    calls: int
    time_ns: int
    dtype: str | None  # the peak it is held against
    flops: float | None
    bytes: float | None
    intensity: float | None = None
    flop_per_s: float | None = None
    bytes_per_s: float | None = None
    balance: float | None = None
    bound: Bound | None = None
    how: str = ""  # why it is called so: intensity against balance, or counters
    roof_ratio: float | None = None  # achieved of its roof; may pass 1 where L2 serves the bytes
    time_at_roof_ns: int | None = None
    waits: bool = False  # far below both roofs
    shapes: str | None = None
    number: int | None = None  # of the launch, in its file
    levels: tuple[Level, ...] = ()

    @property
    def won_ns(self) -> int | None:
        """Time that would be won at the roof."""
        return None if self.time_at_roof_ns is None else max(self.time_ns - self.time_at_roof_ns, 0)


@dataclass(frozen=True)
class Roofline:
    """All points, longest first, and the roofs they are held against."""

    points: tuple[Point, ...]
    roofs: Roofs | None
    time_ns: int  # of all kernels, placed or not
    placed_ns: int  # of the points that could be placed

    @property
    def not_placed_ratio(self) -> float | None:
        """Share of the time whose place on the roofline is not known."""
        return 1 - self.placed_ns / self.time_ns if self.time_ns else None


def roofline(trace: Trace, needs_bytes: Floats | None = None) -> Roofline:
    """Launches with counters where the trace has them, else operators."""
    if kernel_launches(trace):
        return launch_roofline(trace)
    return operator_roofline(trace, needs_bytes)


def operator_roofline(trace: Trace, needs_bytes: Floats | None = None) -> Roofline:
    """Operators grouped by name, shapes and number format.

    ``needs_bytes`` of each row of ``device_ops``, NaN where unknown: what an operator without a
    cost of its own is placed by, if it is known of all of its kernels.
    """
    work, known = operator_work(trace), roofs(trace)
    if needs_bytes is not None and len(work.rows):
        work = replace(work, bytes=_filled(trace, work, needs_bytes))
    points = [] if not len(work.rows) else _operator_points(trace, work, known)
    total = int(work.device_ns.sum())
    ops = trace.device_ops
    if ops is not None:
        total = int(ops["duration_ns"][ops["kind"] == DeviceKind.KERNEL].sum())
    placed = sum(p.time_ns for p in points if p.bound is not None)
    points.sort(key=lambda p: -p.time_ns)
    return Roofline(tuple(points), known, total, placed)


def _filled(trace: Trace, work: OperatorWork, needs_bytes: Floats) -> Rows:
    """Bytes of each call, with those that its kernels need where it has no cost."""
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    assert host is not None
    kernels = np.flatnonzero((ops["kind"] == DeviceKind.KERNEL) & ops.known("host_op"))
    call = np.searchsorted(work.rows, ops["host_op"][kernels])
    needs = np.bincount(call, needs_bytes[kernels], len(work.rows))  # NaN if one is unknown
    fits = ~work.understood & np.isfinite(needs)
    # What fills and copies inside a call have of its bytes differs from call to call.
    of_call = (host["name"], host.filled("shapes", NOT_KNOWN))
    alike = distinct_rows(*(column[work.rows].astype(np.int64) for column in of_call))[1]
    mean = np.bincount(alike, np.where(fits, needs, 0.0)) / np.bincount(alike, fits).clip(1)
    return np.where(fits, np.rint(mean[alike]).astype(np.int64), work.bytes)


def _operator_points(trace: Trace, work: OperatorWork, known: Roofs | None) -> list[Point]:
    host = trace.host_ops
    assert host is not None
    distinct, which = distinct_rows(
        host["name"][work.rows].astype(np.int64),
        host.filled("shapes", NOT_KNOWN)[work.rows].astype(np.int64),
        work.precision.astype(np.int64),
        work.on_matrix_units.astype(np.int64),
        work.matrix.astype(np.int64),
        work.flops,
        work.bytes,
    )
    counts = np.bincount(which, minlength=len(distinct))
    time = np.bincount(which, minlength=len(distinct), weights=work.device_ns.astype(np.float64))
    points = []
    for row, calls, lasting in zip(distinct.tolist(), counts.tolist(), time.tolist(), strict=True):
        name, shapes, precision, units, matrix, flops, size = row
        dtype = peak_type(precision, units, matrix=bool(matrix))
        flops_known = None if flops == NOT_KNOWN else float(flops * calls)
        if dtype is None and flops_known is not None:
            dtype = _faster_than_fp32(flops_known, lasting, known)
        points.append(
            _placed(
                Point(
                    name=trace.names[name], kind="operator", calls=calls, time_ns=int(lasting),
                    dtype=dtype, flops=flops_known,
                    bytes=None if size == NOT_KNOWN else float(size * calls),
                    shapes=None if shapes == NOT_KNOWN else trace.names[shapes],
                ),
                known,
            )
        )  # fmt: skip
    return points


def _faster_than_fp32(flops: float, time_ns: float, known: Roofs | None) -> str:
    """Which type a float32 product used, where the kernel does not tell: TF32 if it is too fast."""
    roof = known.compute.get("fp32") if known is not None else None
    if roof is not None and time_ns and flops / time_ns * 1e9 > roof.per_s:
        return "tf32"
    return "fp32"


@once_per_trace
def launch_roofline(trace: Trace) -> Roofline:
    """Profiled launches in the order of their time."""
    points = [launch_point(trace, launch) for launch in kernel_launches(trace)]
    total = sum(p.time_ns for p in points)
    placed = sum(p.time_ns for p in points if p.bound is not None)
    points.sort(key=lambda p: -p.time_ns)
    return Roofline(tuple(points), roofs(trace), total, placed)


def launch_point(trace: Trace, launch: KernelLaunch) -> Point:
    """One profiled launch, held against the roofs at its own clocks."""
    facts = kernel_facts(launch)
    spec = spec_of(trace, launch.device) or find_spec(_device_name(launch))
    known = at_clock(spec, facts.sm_clock_hz, facts.dram_peak_bytes_per_s) if spec else None
    flops, dtype = facts.total_flops, None
    if facts.flops is not None:
        dtype = max(facts.flops, key=lambda t: facts.flops[t], default="fp32")  # type: ignore[index]
    point = _placed(
        Point(
            name=launch.name, kind="launch", calls=1, time_ns=round(facts.duration_ns or 0),
            dtype=dtype, flops=flops, bytes=facts.dram_bytes, number=launch.number,
            levels=_levels(facts),
        ),
        known,
    )  # fmt: skip
    return _busy(point, facts) if point.bound is not None else _by_counters(point, facts)


BUSY_PERCENT = 60.0  # NVIDIA's rule: below it on both halves, a kernel waits for latency


def _busy(point: Point, facts: KernelFacts) -> Point:
    """A launch far from its roof does not wait if the counters show a unit that is busy."""
    compute, memory = facts.compute_percent, facts.memory_percent
    if compute is None or memory is None:
        return point
    return replace(
        point,
        how=f"{point.how}; memory busy {memory:.0f} %, compute {compute:.0f} %",
        waits=point.waits and max(compute, memory) < BUSY_PERCENT,
    )


def _device_name(launch: KernelLaunch) -> str | None:
    return launch.texts.get("device__attribute_display_name")


def _levels(facts: KernelFacts) -> tuple[Level, ...]:
    found = []
    for name, size, peak in (
        ("device memory", facts.dram_bytes, facts.dram_peak_bytes_per_s),
        ("L2", facts.l2_bytes, facts.l2_peak_bytes_per_s),
    ):
        if size is not None:
            flops = facts.total_flops
            intensity = flops / size if flops is not None and size > 0 else None
            found.append(Level(name, size, peak, intensity))
    return tuple(found)


def _placed(point: Point, known: Roofs | None) -> Point:
    """The point with everything that follows from FLOPs, bytes, time and roofs."""
    seconds = point.time_ns * 1e-9
    flops, size = point.flops, point.bytes
    intensity = flops / size if flops is not None and size else None
    memory = known.memory.per_s if known is not None and known.memory is not None else None
    compute = known.compute.get(point.dtype or "") if known is not None else None
    balance = known.balance(point.dtype) if known is not None and point.dtype else None
    bound: Bound | None = None
    how = ""
    at_roof: float | None = None
    if intensity is not None and balance is not None and memory and compute is not None:
        bound = "memory" if intensity < balance else "compute"
        how = f"intensity {intensity:.3g} FLOP/byte, balance {balance:.3g}"
        at_roof = max((size or 0.0) / memory, (flops or 0.0) / compute.per_s)
    elif size and memory and flops is None and not _may_be_product(point):
        bound, how, at_roof = "memory", "moves bytes; its FLOPs are not counted", size / memory
    ratio = at_roof / seconds if at_roof is not None and seconds else None
    return replace(
        point,
        intensity=intensity,
        flop_per_s=flops / seconds if flops is not None and seconds else None,
        bytes_per_s=size / seconds if size is not None and seconds else None,
        balance=balance,
        bound=bound,
        how=how,
        roof_ratio=ratio,
        time_at_roof_ns=None if at_roof is None else round(at_roof * 1e9),
        waits=ratio is not None and ratio < FAR_FROM_BOTH_ROOFS,
    )


def _may_be_product(point: Point) -> bool:
    """A launch without counted FLOPs may be anything; an operator without is fused vector work."""
    return point.kind == "launch"


def _by_counters(point: Point, facts: KernelFacts) -> Point:
    """Without FLOPs or roofs, the busier half of the chip tells, as in NVIDIA's SpeedOfLight."""
    compute, memory = facts.compute_percent, facts.memory_percent
    if compute is None or memory is None:
        return point
    if abs(compute - memory) < SOL_UNDECIDED_POINTS and max(compute, memory) < 80:
        return point
    bound: Bound = "memory" if memory > compute else "compute"
    most = max(compute, memory) / 100
    return replace(
        point,
        bound=bound,
        how=f"memory busy {memory:.0f} %, compute {compute:.0f} %",
        roof_ratio=most,
        time_at_roof_ns=round(point.time_ns * most),
        waits=max(compute, memory) < BUSY_PERCENT,
    )
