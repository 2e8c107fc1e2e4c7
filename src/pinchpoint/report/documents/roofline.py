"""From a trace to the document of its roofline."""

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.json_text import indented, said
from pinchpoint.report.plain import plain
from pinchpoint.trace import Trace

if TYPE_CHECKING:
    from pinchpoint.analysis.limits.roofline import Point, Roofline
    from pinchpoint.analysis.limits.roofs import Roof, Roofs
    from pinchpoint.analysis.replay.utilisation import Utilisation


# ------------------------------------------------------------------------------------------------
# The roofline as one document: roofs, points, and how much of the peak a step uses.


SCHEMA = "pinchpoint.roofline/1"


class RoofInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One ceiling; ``dtype`` is null for memory."""

    dtype: str | None  # bf16, fp32, …; null: memory
    per_s: float  # the ceiling
    unit: str  # FLOP/s or bytes/s
    source: str  # data sheet, or when it was measured
    measured: bool  # on the machine of the store
    balance: float | None = None  # FLOP/byte where it meets memory


class LevelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A point at one level of the memory."""

    name: str  # device memory, L2
    bytes: float  # moved there
    intensity: float | None  # FLOP per byte of this level
    peak_bytes_per_s: float | None  # of this level


class PointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One operator (all its calls with these shapes) or one profiled launch."""

    name: str  # of the operator, or the kernel for short
    kind: str  # operator or launch
    calls: int  # with these shapes, in the recording
    time_ns: int  # of all these calls
    bound: str | None  # memory or compute: the roof above the point
    how: str  # why the bound is that one
    dtype: str | None  # the format whose roof it is held against
    flops: float | None  # of all these calls
    bytes: float | None  # of all these calls, at least
    intensity: float | None  # FLOP per byte
    balance: float | None  # FLOP per byte where its two roofs meet
    flop_per_s: float | None  # reached
    bytes_per_s: float | None  # reached
    roof_ratio: float | None  # reached of its roof; above 1: see the page
    time_at_roof_ns: int | None  # what it would take at its roof
    won_ns: int | None  # time_ns less time_at_roof_ns
    waits: bool  # far below both roofs: it waits for something else
    shapes: str | None = None  # of the first inputs: 8192x768 768x50257
    launch: int | None = None
    levels: tuple[LevelInfo, ...] = ()  # only where counters were recorded


class ThroughputInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens or samples."""

    unit: str  # tokens or samples
    per_step: int  # in a typical step
    per_s: float | None  # over step_ns
    basis: str  # where the number was read


class UtilisationInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The arithmetic of a typical step."""

    step_ns: int  # of a typical step: see step_how
    step_how: str  # measured or estimated without the profiler, or as recorded
    mean_step_ns: int | None = None  # without the profiler; null: the typical step is the mean one
    flops_per_step: int  # of matrix work, recomputation included
    recomputed_flops_per_step: int  # by checkpointing
    attention_again_flops_per_step: int = 0  # by the backward pass of fused attention
    vector_flops_per_step: int  # elementwise and the like; not in MFU
    dtype: str | None  # of most of the FLOPs
    by_dtype: dict[str, int]  # FLOPs a step by format
    devices: int  # that share the work
    peak_flop_per_s: float | None  # of one device, data sheet
    peak_source: str | None  # which data sheet
    mfu: float | None  # share of the peak, without recomputation
    hfu: float | None  # share of the peak, with recomputation
    mfu_unmasked: float | None  # if causal attention counts whole
    measured_peak_flop_per_s: float | None  # measured on this machine
    mfu_of_measured: float | None  # share of the measured peak
    not_modelled_ratio: float | None  # of kernel time: nothing known of it
    throughput: ThroughputInfo | None = None  # null: no inputs to count


class RooflineDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one recording's work against the roofs of its device."""

    schema: str = SCHEMA  # this name and version
    path: str  # of the recording
    device: str | None  # as the driver names it
    what: str  # operators or launches
    roofs: tuple[RoofInfo, ...]  # memory first, then the fastest format
    points: tuple[PointInfo, ...]  # longest first
    points_left_out: int = 0  # shorter than those listed
    time_ns: int  # of all kernels
    not_placed_ratio: float | None  # of that time: no place on the roofline
    utilisation: UtilisationInfo | None  # null: no steps or no device
    notes: tuple[str, ...] = ()  # what to know before reading it


def encode_roofline(document: RooflineDocument) -> bytes:
    """The document as JSON."""
    return indented(document)


# ------------------------------------------------------------------------------------------------
# From a trace to the document of its roofline.


MOST_POINTS = 200  # longest first; the rest is a tail that nobody reads
_MOST_SHAPES = 6  # of one operator, in one cell


def roofline_document(trace: Trace, most: int = MOST_POINTS) -> RooflineDocument:
    """The document of one recording, with at most so many points.

    Of a run whose window without names has no sizes, it is that of the window with names.
    """
    from pinchpoint.analysis.causal.vector_bytes import vector_bytes
    from pinchpoint.analysis.limits.roofline import roofline

    found, path, notes = roofline(trace, vector_bytes(trace)), trace.source.path, []
    if trace.with_names is not trace and not _placed(found):
        of_names = roofline(trace.with_names, vector_bytes(trace.with_names))
        if _placed(of_names):
            found, trace, notes = of_names, trace.with_names, [_OF_NAMES]
    from pinchpoint.analysis.mean.mean_step import mean_without_profiler_ns
    from pinchpoint.analysis.replay.utilisation import not_modelled_ratio, utilisation

    used = utilisation(trace) if trace.device_ops is not None else None
    if used is not None:
        unknown = not_modelled_ratio(trace, vector_bytes(trace))
        used = replace(used, not_modelled_ratio=unknown)
    points = found.points
    operators = not points or points[0].kind == "operator"
    return RooflineDocument(
        path=said(str(path)),
        device=None if found.roofs is None else plain(found.roofs.device),
        what="operators" if operators else "launches",
        roofs=_roofs(found.roofs),
        points=tuple(_point(p) for p in points[:most]),
        points_left_out=max(len(points) - most, 0),
        time_ns=found.time_ns,
        not_placed_ratio=found.not_placed_ratio,
        utilisation=_utilisation(used, mean_without_profiler_ns(trace)) if used else None,
        notes=(*notes, *_notes(trace, found, used)),
    )


_OF_NAMES = "of the steps recorded with names and sizes: the others have none"


def _placed(found: "Roofline") -> bool:
    """Whether anything has a place on it."""
    return any(point.bound is not None for point in found.points)


def _roofs(known: "Roofs | None") -> tuple[RoofInfo, ...]:
    if known is None:
        return ()
    found = [] if known.memory is None else [_roof(None, known.memory, "bytes/s", None)]
    by_rate = sorted(known.compute.items(), key=lambda pair: -pair[1].per_s)
    found += [_roof(t, roof, "FLOP/s", known.balance(t)) for t, roof in by_rate]
    return tuple(found)


def _roof(dtype: str | None, roof: "Roof", unit: str, balance: float | None) -> RoofInfo:
    return RoofInfo(
        dtype=dtype, per_s=roof.per_s, unit=unit, source=roof.source, measured=roof.measured,
        balance=balance,
    )  # fmt: skip


def _point(point: "Point") -> PointInfo:
    return PointInfo(
        name=plain(short_kernel_name(point.name) if point.kind == "launch" else point.name),
        kind=point.kind,
        calls=point.calls,
        time_ns=point.time_ns,
        bound=point.bound,
        how=point.how,
        dtype=point.dtype,
        flops=point.flops,
        bytes=point.bytes,
        intensity=point.intensity,
        balance=point.balance,
        flop_per_s=point.flop_per_s,
        bytes_per_s=point.bytes_per_s,
        roof_ratio=point.roof_ratio,
        time_at_roof_ns=point.time_at_roof_ns,
        won_ns=point.won_ns,
        waits=point.waits,
        shapes=None if point.shapes is None else _sizes(point.shapes),
        launch=point.number,
        levels=tuple(
            LevelInfo(
                name=level.name,
                bytes=level.bytes,
                intensity=level.intensity,
                peak_bytes_per_s=level.peak_bytes_per_s,
            )
            for level in point.levels
        ),
    )


def _sizes(shapes: str) -> str | None:
    """``[[8192,768],[768,50257],[]]`` as ``8192x768 768x50257``."""
    from pinchpoint.analysis.host.input_arguments import tensor_shapes

    tensors = tensor_shapes(shapes)
    words = ["x".join(map(str, shape)) for shape in tensors[:_MOST_SHAPES]]
    more = " …" if len(tensors) > _MOST_SHAPES else ""
    return plain(" ".join(words) + more) if words else None


def _utilisation(used: "Utilisation", mean_ns: int | None) -> UtilisationInfo:
    items = used.throughput
    return UtilisationInfo(
        step_ns=used.step_ns,
        step_how=used.step_how,
        mean_step_ns=mean_ns,
        flops_per_step=used.flops_per_step,
        recomputed_flops_per_step=used.recomputed_flops_per_step,
        attention_again_flops_per_step=used.attention_again_flops_per_step,
        vector_flops_per_step=used.vector_flops_per_step,
        dtype=used.dtype,
        by_dtype=used.by_dtype,
        devices=used.devices,
        peak_flop_per_s=None if used.peak is None else used.peak.per_s,
        peak_source=None if used.peak is None else used.peak.source,
        mfu=used.mfu,
        hfu=used.hfu,
        mfu_unmasked=used.mfu_unmasked,
        measured_peak_flop_per_s=None if used.measured_peak is None else used.measured_peak.per_s,
        mfu_of_measured=used.mfu_of_measured,
        not_modelled_ratio=used.not_modelled_ratio,
        throughput=None
        if items is None
        else ThroughputInfo(
            unit=items.unit, per_step=items.per_step, per_s=used.items_per_s, basis=items.basis
        ),
    )


_WORTH_A_NOTE = 0.1  # of the time without a place on the roofline


def _notes(trace: Trace, found: "Roofline", used: "Utilisation | None") -> list[str]:
    notes = []
    if found.roofs is None:
        notes.append("no data sheet for this device: FLOPs are counted, roofs are not known")
    elif found.roofs.memory is not None and not found.roofs.memory.measured:
        notes.append("roofs are from the data sheet; pinchpoint ceilings measures real ones")
    if found.points and found.points[0].kind == "launch":
        notes.append("launches are held against roofs at the clock that ncu ran them at")
    if (found.not_placed_ratio or 0.0) > _WORTH_A_NOTE:
        notes.append(_why_not_placed(trace, found))
    if used is not None and used.mfu is None and not used.flops_per_step:
        notes.append("no MFU: no product, convolution or attention whose sizes are recorded")
    return notes


def _why_not_placed(trace: Trace, found: "Roofline") -> str:
    share = f"{(found.not_placed_ratio or 0) * 100:.0f} % of the time has no place here"
    host = trace.host_ops
    if found.points and found.points[0].kind == "launch":
        return f"{share}: counters are missing (pinchpoint ncu records all)"
    if host is None or not host.known("shapes").any():
        return f"{share}: sizes were not recorded (record_shapes=True)"
    return f"{share}: no cost model, no sizes, or inside a CUDA graph"
