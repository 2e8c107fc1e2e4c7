"""The map: from the trace of one rank to its summary. Pure, and the costly half of the work."""

import re

import msgspec
import numpy as np

from pinchpoint.analysis.device.collectives import Arguments
from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.analysis.host.launches import NOBODY, issued, main_thread
from pinchpoint.analysis.host.source_lines import place_of
from pinchpoint.analysis.ranks.collective_calls import rank_calls, step_of
from pinchpoint.analysis.ranks.inputs import first_inputs
from pinchpoint.analysis.ranks.lost_time import host_ns, lost_time, where
from pinchpoint.analysis.ranks.summary import (
    DEVICE,
    LONGEST_TEXT,
    MOST_BYTES,
    UNKNOWN,
    CallKind,
    Calls,
    Cause,
    Kernel,
    ProcessGroup,
    RankPart,
    RankSummary,
    StepColumns,
    clipped,
    pack,
    pack_small,
    steps_kept,
    stride_for,
)
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.replay.recording_cost import cost_in_windows
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps
from pinchpoint.analysis.steps.steps import Steps, steps
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.json_text import encoded
from pinchpoint.trace import DeviceKind, Severity, Trace
from pinchpoint.trace.arrays import Floats, Ints

KERNELS_KEPT = 24  # those with most time; a summary is to stay small
_RANKS_TEXT = 400  # characters kept of a group's list of ranks


def summarise(trace: Trace) -> RankSummary:
    """All that is kept of a rank's recording, at most ``MOST_BYTES`` as JSON.

    A recording whose health forbids conclusions about time keeps its identity only.
    """
    refused = _refused(trace)
    if refused is not None:
        return _identity(trace, StepColumns(how="none"), refused=refused)
    found, parts = steps(trace), breakdown(trace)
    kept = steps_kept(len(found), len(parts.parts))
    first = len(found) - kept
    kinds, groups, calls = _calls(trace, first)
    summary = _identity(
        trace,
        _steps(trace, found, first),
        parts=tuple(RankPart(id=p.id, label=p.label, group=p.group) for p in parts.parts),
        typical_step_ns=found.typical_ns,
        corrected_step_ns=corrected_step_ns(trace),
        groups=groups,
        call_kinds=kinds,
        calls=calls,
        point_to_point=rank_calls(trace).point_to_point,
        causes=lost_time(trace),
        kernels=_kernels(trace),
        inputs=first_inputs(trace),
    )
    return _within_bounds(summary)


def _identity(trace: Trace, columns: StepColumns, **more: object) -> RankSummary:
    tables = (trace.host_ops, trace.api_calls, trace.device_ops)
    return msgspec.structs.replace(
        RankSummary(rank=trace.rank, format=trace.source.format, events=0, steps=columns),
        world_size=trace.world_size,
        device=clipped(_device(trace), LONGEST_TEXT),
        backend=clipped(trace.collective_backend, LONGEST_TEXT),
        events=sum(len(t) for t in tables if t is not None),
        truncated=trace.source.truncated,
        origin_ns=trace.origin_ns,
        **more,
    )


def _refused(trace: Trace) -> str | None:
    health = trace.health
    if health is not None:
        for row in np.flatnonzero(health["severity"] == Severity.FATAL).tolist():
            return trace.text(health, "detail", row) or "the recording is not usable"
    if not len(steps(trace)):
        return "the recording holds no work"
    if trace.source.truncated and trace.devices and not _has_device(trace):
        return "the file is cut off before what the device did"
    return None


def _has_device(trace: Trace) -> bool:
    return trace.device_ops is not None and len(trace.device_ops) > 0


def _device(trace: Trace) -> str | None:
    if trace.device_ops is None or not _has_device(trace):
        return None
    used = int(trace.device_ops["device"][0])
    return next((d.name for d in trace.devices if d.number == used), None) or "unnamed device"


def _steps(trace: Trace, found: Steps, first: int) -> StepColumns:
    origin = trace.origin_ns or 0
    begin = found.host_start_ns
    issue_end = np.append(begin[1:], found.host_end_ns[-1:])
    return StepColumns(
        how=found.how,
        number=pack(found.number[first:]),
        start_ns=pack(found.start_ns[first:] + origin),
        end_ns=pack(found.end_ns[first:] + origin),
        complete=pack(found.complete[first:]),
        host_ns=pack(host_ns(trace, found, issue_end)[first:]),
        recording_ns=pack(_recording_ns(trace, begin, issue_end)[first:]),
        kernels=pack(_kernels_by_step(trace, len(found))[first:]),
        parts_ns=pack(breakdown(trace).by_step[first:]),
    )


def _recording_ns(trace: Trace, begin: Ints, end: Ints) -> Ints:
    main, by = main_thread(trace), issued(trace)
    threads = np.unique(np.append(by.thread[by.linked], main)).astype(np.intp)
    threads = threads[threads != NOBODY]
    if not len(threads):
        return np.zeros(len(begin), np.int64)
    return cost_in_windows(trace, threads, begin, end)


def _kernels_by_step(trace: Trace, count: int) -> Ints:
    ops = trace.device_ops
    if ops is None or not len(ops):
        return np.zeros(count, np.int64)
    by = issued(trace)
    step = step_of(trace, by.start_ns)
    chosen = (ops["kind"] == DeviceKind.KERNEL) & (step >= 0)
    chosen &= by.linked if by.linked.any() else True  # what was launched before is of no step
    counted: Ints = np.bincount(step[chosen], minlength=count).astype(np.int64)
    return counted


def _calls(
    trace: Trace, first: int
) -> tuple[tuple[CallKind, ...], tuple[ProcessGroup, ...], Calls]:
    found = rank_calls(trace)
    groups: dict[ProcessGroup, int] = {}
    kinds: dict[CallKind, int] = {}
    group, kind = np.zeros((2, len(found.asked)), np.int64)
    for i, (asked, kernel) in enumerate(zip(found.asked, found.kernel, strict=True)):
        group[i] = groups.setdefault(_group(asked), len(groups))
        kind[i] = kinds.setdefault(_kind(asked, int(group[i]), kernel), len(kinds))
    place = places_in_steps(group, found.step)
    stride = stride_for(int(np.count_nonzero(found.step >= first)))
    kept = np.flatnonzero((found.step >= first) & (place % stride == 0))
    sequence = np.array(
        [UNKNOWN if a.sequence is None else a.sequence % (1 << 31) for a in found.asked], np.int64
    )
    columns = Calls(
        start_ns=pack(found.start_ns[kept] + (trace.origin_ns or 0)),
        duration_ns=pack(found.duration_ns[kept]),
        ready_ns=pack(found.ready_ns[kept] + (trace.origin_ns or 0)),
        exposed_ns=pack(found.exposed_ns[kept]),
        covered=found.covered[kept].astype("u1").tobytes(),
        kind=pack_small(kind[kept]),
        step=pack_small(found.step[kept] - first),
        place=pack_small(place[kept]),
        sequence=pack_small(sequence[kept]),
        stride=stride,
        in_all=len(found.asked),
    )
    return tuple(kinds), tuple(groups), columns


def places_in_steps(group: Ints, step: Ints) -> Ints:
    """Position of each call among those of its group and step, in order."""
    place = np.zeros(len(group), np.int64)
    if not len(group):
        return place
    order = np.lexsort((np.arange(len(group)), group, step))
    changes = np.diff(group[order], prepend=-1) != 0
    changes |= np.diff(step[order], prepend=-2) != 0
    starts = np.flatnonzero(changes)
    lengths = np.diff(np.append(starts, len(order)))
    place[order] = np.arange(len(order)) - np.repeat(starts, lengths)
    return place


def _group(asked: Arguments) -> ProcessGroup:
    return ProcessGroup(
        name=clipped(asked.group, LONGEST_TEXT),
        description=clipped(asked.group_description, LONGEST_TEXT),
        ranks=clipped(asked.group_ranks, _RANKS_TEXT),
        size=asked.group_size,
    )


def _kind(asked: Arguments, group: int, kernel: str) -> CallKind:
    return CallKind(
        group=group,
        kind=clipped(asked.kind, LONGEST_TEXT) or "other",
        bytes=asked.bytes,
        dtype=clipped(asked.dtype, LONGEST_TEXT),
        kernel=kernel,
    )


def _kernels(trace: Trace) -> tuple[Kernel, ...]:
    ops = trace.device_ops
    if ops is None or not len(ops):
        return ()
    rows = np.flatnonzero(device_ops_in_steps(trace) & (ops["kind"] == DeviceKind.KERNEL))
    total = np.bincount(ops["name"][rows], ops["duration_ns"][rows])
    count = np.bincount(ops["name"][rows])
    blocks = _blocks(trace)[ops.filled("grid", len(trace.names))[rows]]
    in_all = np.bincount(ops["name"][rows], np.nan_to_num(blocks), len(total))
    unknown = np.bincount(ops["name"][rows], np.isnan(blocks), len(total))
    most = np.argsort(-total, kind="stable")[:KERNELS_KEPT]
    return tuple(
        Kernel(
            name=short_kernel_name(trace.names[n])[:LONGEST_TEXT],
            count=int(count[n]),
            total_ns=ns,
            blocks=None if unknown[n] else float(in_all[n] / count[n]),
            place=_place(trace, rows[ops["name"][rows] == n], ns),
        )
        for n, ns in zip(most.tolist(), total[most].astype(np.int64).tolist(), strict=True)
        if ns
    )


def _place(trace: Trace, rows: Ints, total_ns: int) -> Cause | None:
    """Where the longest of these operations was launched; None where no host row is known."""
    ops = trace.device_ops
    assert ops is not None
    longest = int(rows[ops["duration_ns"][rows].argmax()])
    launched = ops.value("host_op", longest)
    if launched is None:
        return None
    each = round(total_ns / max(len(judged_steps(trace)), 1))
    at = place_of(trace, int(launched))
    return Cause(part=DEVICE, ns_per_step=each, at_ns=int(ops["start_ns"][longest]), **where(at))


def _blocks(trace: Trace) -> Floats:
    """Blocks by the name that a grid has; nan for other names, and at the end for no grid."""
    out = np.full(len(trace.names) + 1, np.nan)
    ops = trace.device_ops
    if ops is not None:
        for name in np.unique(ops["grid"][ops.known("grid")]).tolist():
            numbers = [int(n) for n in re.findall(r"\d{1,9}", trace.names[name])]
            if numbers:
                out[name] = float(np.prod([float(n) for n in numbers]))
    return out


def _within_bounds(summary: RankSummary) -> RankSummary:
    """Texts give way before numbers do, should a recording's names be absurdly many."""
    if len(encoded(summary)) <= MOST_BYTES:
        return summary
    kinds = tuple(msgspec.structs.replace(k, kernel="", dtype=None) for k in summary.call_kinds)
    groups = tuple(msgspec.structs.replace(g, ranks=None) for g in summary.groups)
    return msgspec.structs.replace(
        summary, call_kinds=kinds, groups=groups, causes=(), kernels=(), inputs=()
    )
