"""From scanned columns and the frame to a Trace."""

from dataclasses import replace
from types import MappingProxyType

import numpy as np

from pinchpoint.importers.health import health_table
from pinchpoint.importers.kineto import facts
from pinchpoint.importers.kineto.clock import Clock, clock_of, origin_ns, time_order
from pinchpoint.importers.kineto.columns import Columns, Interned, Told, known, known_32
from pinchpoint.importers.kineto.counters import counter_table
from pinchpoint.importers.kineto.device import device_tables
from pinchpoint.importers.kineto.device_kinds import is_called_as_on_device, is_drivers_copy
from pinchpoint.importers.kineto.health import ScannedRecording, recording_facts
from pinchpoint.importers.kineto.host import Sources, host_tables, is_driver_call
from pinchpoint.importers.kineto.pairs import join_pairs
from pinchpoint.importers.kineto.reading.document import DocumentFrame
from pinchpoint.importers.kineto.reading.fields import ABSENT, NULL, PLACE, Lane
from pinchpoint.importers.kineto.reading.rare import (
    Rare,
    kernel_counter_table,
    read_rare,
)
from pinchpoint.importers.kineto.reading.scan import FURTHEST_NS, Scanned
from pinchpoint.importers.kineto.reading.scanner import ScannerName, scan_again
from pinchpoint.importers.kineto.reading.text import Text
from pinchpoint.importers.kineto.recorder import (
    recorder_of,
    version_of_torch,
    written_by_ascend,
    written_by_xla,
)
from pinchpoint.importers.kineto.threads import Threads, move_streams
from pinchpoint.trace import FlowKind, Names, Source, Table, Trace, table
from pinchpoint.trace.arrays import Array
from pinchpoint.trace.window import window

# ------------------------------------------------------------------------------------------------
# Allocator events that the profiler wrote with ``profile_memory=True``.


_HOST_MEMORY = 0  # c10::DeviceType::CPU


def allocation_table(sources: Sources) -> Table | None:
    """One row an allocation or release; None if the file has none."""
    columns = sources.columns
    if not columns.rows(Lane.MEMORY):
        sources.clock.starts.pop(Lane.MEMORY)
        return None
    spans = sources.clock.spans(columns, Lane.MEMORY, timed_only=True)
    taken = {
        name: spans.of(columns.take(Lane.MEMORY, name))
        for name in (
            "memory_bytes",
            "address",
            "memory_device",
            "memory_device_type",
            "total_allocated",
            "total_reserved",
        )
    }
    size = taken["memory_bytes"]
    on_host = taken["memory_device_type"] == _HOST_MEMORY
    device, no_device = known_32(taken["memory_device"])
    address, no_address = known(taken["address"])
    allocated, no_allocated = known(taken["total_allocated"])
    reserved, no_reserved = known(taken["total_reserved"])
    out = {
        "time_ns": spans.start,
        "address": np.where(no_address, 0, address).astype(np.uint64),
        "bytes": np.where(size == NULL, 0, size),
        "device": device,
        "allocated_bytes": allocated,
        "reserved_bytes": reserved,
        "thread": spans.of(sources.threads.positions(columns.take(Lane.MEMORY, PLACE))),
    }
    if sources.rank is not None:
        out["rank"] = np.full(len(size), sources.rank, np.int32)
    missing = {
        "address": no_address,
        "device": no_device | on_host,
        "allocated_bytes": no_allocated,
        "reserved_bytes": no_reserved,
    }
    return table("allocations", out, missing)


# ------------------------------------------------------------------------------------------------
# Edges: forward to backward, event to wait, synchronisation as the device sees it.


_BEGIN, _END = ord("s"), ord("f")


def flow_table(sources: Sources) -> Table:
    """All edges that are not launches."""
    parts = [_arrows(sources), _synchronisations(sources)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = time_order(columns["start_ns"])
    if order is not None:
        columns = {name: values[order] for name, values in columns.items()}
    missing = {}
    for name in ("from_correlation", "to_stream"):
        columns[name], missing[name] = known(columns[name])
    columns["device"], missing["device"] = known_32(columns["device"])
    for name in ("from_thread", "to_thread"):
        missing[name] = columns[name] == ABSENT
    return table("flows", columns, missing)


def _arrows(sources: Sources) -> dict[str, Array]:
    columns, interned = sources.columns, sources.interned
    spans = sources.clock.spans(columns, Lane.FLOW, timed_only=True)
    thread = spans.of(sources.threads.positions(columns.take(Lane.FLOW, PLACE)))
    phase = spans.of(columns.take(Lane.FLOW, "phase"))
    flow = spans.of(columns.take(Lane.FLOW, "flow"))
    category = spans.of(columns.take(Lane.FLOW, "category"))
    columns.take(Lane.FLOW, "event")
    begin, end = _pairs(phase, flow, category)
    kinds = interned.chosen(category[begin], _kind)
    nothing = np.full(len(begin), NULL)
    return {
        "start_ns": spans.start[begin],
        "end_ns": spans.start[end],
        "kind": kinds,
        "from_thread": thread[begin].astype(np.int32),
        "to_thread": thread[end].astype(np.int32),
        "from_correlation": nothing,
        "to_stream": nothing,
        "device": nothing,
    }


def _kind(category: str) -> int:
    return FlowKind.FORWARD_BACKWARD if category == "fwdbwd" else FlowKind.OTHER


def _pairs(phase: Array, flow: Array, category: Array) -> tuple[Array, Array]:
    """Rows of beginnings and of the ends that belong to them.

    Ids count from 1 again in every category, and may be used anew later: the n-th beginning of
    an id goes with its n-th end.
    """
    arrows = np.flatnonzero((flow != NULL) & ((phase == _BEGIN) | (phase == _END)))
    is_end = phase[arrows] == _END
    order = np.lexsort((is_end, flow[arrows], category[arrows]))
    arrows, is_end = arrows[order], is_end[order]
    fresh = np.ones(len(arrows), np.bool_)
    same = (flow[arrows[1:]] == flow[arrows[:-1]]) & (category[arrows[1:]] == category[arrows[:-1]])
    fresh[1:] = ~same
    group = np.cumsum(fresh) - 1
    ends = np.bincount(group, is_end).astype(np.int64)
    begins = np.bincount(group).astype(np.int64) - ends
    first = np.flatnonzero(fresh)
    place = np.arange(len(arrows)) - first[group]  # beginnings stand first in their group
    chosen = np.flatnonzero(~is_end & (place < ends[group]))
    return arrows[chosen], arrows[chosen + begins[group[chosen]]]


def _synchronisations(sources: Sources) -> dict[str, Array]:
    columns, interned = sources.columns, sources.interned
    spans = sources.clock.spans(columns, Lane.SYNC)

    def take(column: str) -> Array:
        return spans.of(columns.take(Lane.SYNC, column))

    waits = interned.chosen(take("name"), lambda name: "Wait" in name) == 1
    correlation, record = take("correlation"), take("record_correlation")
    absent = np.full(len(waits), ABSENT, np.int32)
    return {
        "start_ns": spans.start,
        "end_ns": spans.start + spans.duration,
        "kind": np.where(waits, FlowKind.EVENT_WAIT, FlowKind.DEVICE_SYNC),
        "from_thread": absent,
        "to_thread": absent,
        "from_correlation": np.where(waits, record, correlation),
        "to_stream": take("stream"),
        "device": take("device"),
    }


# ------------------------------------------------------------------------------------------------
# From scanned columns and the frame to a Trace.


FORMAT = "kineto"
UNNAMED = "unnamed"  # events without a name; the first of the trace's names


def assemble(text: Text, frame: DocumentFrame, scanned: Scanned, scanner: ScannerName) -> Trace:
    """Build every table."""
    rank, world_size = facts.rank_and_size(frame.members)
    columns = Columns(scanned)
    names = Names([UNNAMED])
    interned = Interned(columns.texts, names)
    rare = read_rare(columns.raw)
    unpaired = join_pairs(columns, scanner)
    told = _what_xla_said(text, scanned, columns, rare, scanner)
    move_streams(columns, rare)
    if not columns.rows(Lane.API) and not columns.rows(Lane.DEVICE):
        columns.move_named(Lane.API, is_driver_call, is_driver_call)
        columns.move_named(Lane.DEVICE, is_called_as_on_device, is_drivers_copy)
    clock = clock_of(columns)
    sources = Sources(
        columns, interned, names, Threads(columns.places, rare), clock, rank, scanner, rare
    )
    host_ops, api_calls, steps, crossings, shows_torch = host_tables(sources)
    version = version_of_torch(frame.members)
    device_ops, device_annotations = device_tables(sources, host_ops, api_calls)
    flows = flow_table(sources)
    allocations = allocation_table(sources)
    has_device_side = len(device_ops) > 0 or len(api_calls) > 0
    trace = Trace(
        source=Source(
            path=str(text.path),
            format=FORMAT,
            bytes=text.total_bytes,
            truncated=not scanned.ended or text.damage is not None,
            recorder=recorder_of(
                frame.members, rare.process_names.values(), shows_torch=shows_torch
            ),
            recorder_version=version,
            producer=f"torch {version}" if version else None,
            options=MappingProxyType(facts.options(frame.members) | {"scanner": scanner}),
            first_ns=_first_of_all_ns(scanned, clock),
        ),
        threads=sources.threads.freeze(),
        devices=facts.devices(frame.members),
        origin_ns=origin_ns(frame.members, clock.zero_ns),
        rank=rank,
        world_size=world_size,
        collective_backend=facts.collective_backend(frame.members),
        host_ops=host_ops,
        api_calls=api_calls if has_device_side else None,
        device_ops=device_ops if has_device_side else None,
        device_annotations=device_annotations if has_device_side else None,
        flows=flows,
        steps=steps,
        counters=counter_table(columns, names, clock.zero_ns, rank),
        kernel_counters=kernel_counter_table(rare, names),
        allocations=allocations,
        names=names.freeze(),
    )
    seen = _asked_for(trace, scanned)
    found = ScannedRecording(
        frame=frame,
        scanned=scanned,
        columns=columns,
        unpaired=unpaired,
        clock=clock,
        rare=rare,
        damage=text.damage,
        rank=rank,
        devices=facts.devices(frame.members),
        host_ops=host_ops if seen.host_ops is None else seen.host_ops,
        api_calls=api_calls if seen.api_calls is None else seen.api_calls,
        device_ops=device_ops if seen.device_ops is None else seen.device_ops,
        steps=steps,
        names=names,
        crossings=crossings,
        threads=sources.threads.freeze(),
    )
    health = health_table(recording_facts(found), names)
    given = [replace(trace, health=health, names=names.freeze())]
    spoken = [] if told is None else [told]
    # what it replaces is not to be held meanwhile: it is most of the memory at the peak
    del trace, told, found, seen, sources, columns, interned
    del host_ops, api_calls, device_ops, device_annotations, flows, allocations, steps
    return _as_recorder_says(given, rare, spoken)


def _asked_for(trace: Trace, scanned: Scanned) -> Trace:
    """What facts are told of: all that was read, or the part that was asked for.

    At the ends of what is kept beside that, launches and their work are missing.
    """
    first = trace.source.first_ns
    if scanned.left_out is None or scanned.left_out.part is None or first is None:
        return trace
    part = scanned.left_out.part
    if part.since_ns is not None:
        first += part.since_ns - scanned.left_out.first_ns
    to_ns = FURTHEST_NS if part.to_ns is None else first + part.to_ns
    return window(trace, first + part.from_ns, to_ns)


def _first_of_all_ns(scanned: Scanned, clock: Clock) -> int | None:
    return None if scanned.left_out is None else scanned.left_out.first_ns - clock.zero_ns


def _what_xla_said(
    text: Text, scanned: Scanned, columns: Columns, rare: Rare, scanner: ScannerName
) -> Told | None:
    """The arguments of the host's events if XLA wrote them; only seldom by a second scan."""
    told = Told(*columns.said(), columns.texts) if scanned.keeps_arguments else None
    if not written_by_xla(rare):
        return None
    if told is None:
        again = Columns(scan_again(text, scanner))
        told = Told(*again.said(), again.texts)
    return told


def _as_recorder_says(given: list[Trace], rare: Rare, told: list[Told]) -> Trace:
    """The trace with what only the recorders of some devices say; PyTorch's needs none of it.

    The lists hold the trace, and what was told if anything was; both are taken out.
    """
    if written_by_ascend(rare):
        from pinchpoint.importers.kineto.ascend import as_ascend_says

        return as_ascend_says(given.pop(), rare)
    if told:
        from pinchpoint.importers.kineto.compiled import as_xla_says

        return as_xla_says(given, rare, told)
    return given.pop()
