"""Perfetto's protobuf: rocprofv3 (``.pftrace``), omnitrace and ROCm Systems Profiler (``.proto``).

Categories say which side a slice is of: calls (``hip_api``, ``rocm_hip``), devices
(``kernel_dispatch``, ``device_hip``), ranges (``marker_api``, ``user``). A slice without a known
category is of a device where its track is named as a queue or stream of one, else of the host.
A kernel belongs to the call with its ``corr_id``, else to the one that a flow leads from.
"""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from pinchpoint.errors import HostileFile, UnreadableFile
from pinchpoint.importers.assembly.timeline import Timeline
from pinchpoint.importers.files.memory import PERFETTO_TIMES, must_fit
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.files.wire import MalformedMessage, fields
from pinchpoint.importers.health import Fact
from pinchpoint.importers.perfetto.packets import (
    CORRELATIONS,
    NOT_KNOWN,
    Slices,
    Track,
    read_slices,
)
from pinchpoint.trace import Device, DeviceKind, HostKind, Source, Trace

FORMAT = "perfetto"
FILES = (".pftrace .perfetto-trace .proto", "rocprofv3, rocprof-sys, tracing of Perfetto")
READS: tuple[str, ...] = ("host", "calls", "device", "steps")
NOT_READ = "counters, ftrace, render stages"

_CALLS = frozenset(
    (
        *("hip_api", "hsa_api", "rccl_api", "rocm_hip", "rocm_hsa"),
        *("cuda_runtime", "cuda_driver", "xpu_runtime"),
    )
)
_ON_DEVICE = frozenset(
    (
        *("kernel_dispatch", "memory_copy", "device_hip", "device_hsa", "roctracer"),
        *("kernel", "gpu_memcpy", "gpu_memset", "gpu"),
    )
)
_RANGES = frozenset(["marker_api", "rocm_roctx", "user", "user_annotation"])
_QUEUE = re.compile(r"\b(?:AGENT|GPU|DEVICE)\b.*\b(?:QUEUE|STREAM)\b|^stream \d+", re.IGNORECASE)
_NUMBERED = re.compile(r"\b(AGENT|GPU|DEVICE|QUEUE|STREAM)\b\s*\[?#?(\d{1,6})", re.IGNORECASE)
_MOST_BYTES = 2 << 30  # read at once
_LONGEST_LENGTH = 4  # bytes of the length of a packet
# Of a TracePacket: clocks, time, writer, events, interned names, flags, configuration, descriptors.
_PACKET_FIELDS = frozenset(
    (3, 6, 8, 10, 11, 12, 13, 33, 35, 36, 41, 43, 44, 45, 50, 58, 59, 60, 79, 87)
)


def claims(path: Path, head: bytes) -> bool:
    """A first packet of which all fields that can be seen are those of a TracePacket."""
    if head[:1] != b"\x0a":
        return False
    begins = next((i + 1 for i in range(1, _LONGEST_LENGTH + 1) if head[i : i + 1] < b"\x80"), 0)
    size = sum((byte & 0x7F) << (7 * at) for at, byte in enumerate(head[1:begins]))
    seen = set()
    try:
        for part in fields(memoryview(head)[begins : begins + size]):
            seen.add(part.number)
    except MalformedMessage:
        pass  # the packet is longer than what was read of it
    return bool(seen) and seen <= _PACKET_FIELDS


def read(path: Path) -> Trace:
    """The slices of all tracks as rows of host and devices."""
    with unpacked(path) as plain:
        if plain.stat().st_size > _MOST_BYTES:
            raise HostileFile(
                f"{path}: larger than {_MOST_BYTES >> 30} GB", hint="record fewer steps"
            )
        must_fit(path, plain.stat().st_size, PERFETTO_TIMES)
        found = read_slices(plain.read_bytes())
    if not len(found):
        raise UnreadableFile(
            f"{path}: a Perfetto trace without a single slice",
            hint="record track events: rocprofv3 --runtime-trace --output-format pftrace",
        )
    timeline, devices = Timeline(), set[int]()
    launched_by = _flows(found)
    lanes: dict[int, _Lane] = {}
    for row in range(len(found)):
        lane = lanes.get(found.track[row])
        if lane is None:
            lane = lanes[found.track[row]] = _lane(timeline, found, found.track[row])
        _add(timeline, devices, found, row, lane, launched_by.get(row))
    facts = [Fact("cut-off")] if found.cut_off else []
    unclosed = found.end_ns.count(NOT_KNOWN)
    facts += [Fact("ranges-unclosed", unclosed)] if unclosed else []
    facts += [Fact("pairs-unmatched", found.unmatched)] if found.unmatched else []
    categories = {c for text in found.texts.freeze() for c in text.split(",")}
    amd = bool(categories & {"hip_api", "kernel_dispatch", "rocm_hip"})
    source = Source(str(path), FORMAT, path.stat().st_size, found.cut_off)
    listed = [Device(n, vendor="amd" if amd else None) for n in sorted(devices)]
    return timeline.trace(source, listed, facts)


def _flows(found: Slices) -> dict[int, int]:
    """Positions of slices that a flow ends in, with a correlation for both ends."""
    begins: dict[int, int] = {}
    for row, flows in sorted(found.flows.items()):
        for flow in flows:
            begins.setdefault(flow, row)
    ends = {}
    for row in sorted({*found.flows, *found.flow_ends}):
        for flow in (*found.flow_ends.get(row, ()), *found.flows.get(row, ())):
            if begins.get(flow, row) != row:
                ends[row] = ends[begins[flow]] = begins[flow] + 1
    return ends


class _Lane(NamedTuple):
    """What slices of a track share."""

    thread: Callable[[], int]
    is_queue: bool
    device: int
    stream: int


def _lane(timeline: Timeline, found: Slices, number: int) -> _Lane:
    track = found.tracks.get(number, Track())
    numbers = {kind.upper(): int(n) for kind, n in _NUMBERED.findall(_names(found, track))}
    return _Lane(
        cache(lambda: _thread(timeline, found, number, track)),
        bool(_QUEUE.search(track.name)),
        next((numbers[k] for k in ("AGENT", "GPU", "DEVICE") if k in numbers), 0),
        numbers.get("QUEUE", numbers.get("STREAM", number % (1 << 31))),
    )


def _add(
    timeline: Timeline,
    devices: set[int],
    found: Slices,
    row: int,
    lane: _Lane,
    flow: int | None,
) -> None:
    begin, end = found.noted("begin_ns", row), found.noted("end_ns", row)
    if begin <= 0 or end <= 0:
        begin, end = found.begin_ns[row], found.end_ns[row]
    if end == NOT_KNOWN or end < begin:
        timeline.unusable += found.end_ns[row] != NOT_KNOWN
        return
    categories = _sides(found.texts[found.category[row]])
    correlation = next((c for key in CORRELATIONS if (c := found.noted(key, row)) > 0), flow)
    name = found.texts[found.name[row]] or "(unnamed)"
    if categories.on_device or (categories.none and lane.is_queue):
        devices.add(lane.device)
        timeline.on_device(
            name,
            begin,
            end - begin,
            lane.device,
            kind=DeviceKind.COPY if categories.copy or name.startswith("Memcpy") else None,
            stream=lane.stream,
            correlation=correlation,
        )
    elif categories.call:
        timeline.call(name, begin, end - begin, lane.thread(), correlation)
    else:
        kind = HostKind.ANNOTATION if categories.range else HostKind.OPERATOR
        timeline.on_host(name, begin, end - begin, lane.thread(), kind)


class _Sides(NamedTuple):
    """What a slice's categories say that it is."""

    on_device: bool
    call: bool
    range: bool
    copy: bool

    @property
    def none(self) -> bool:
        return not (self.call or self.range)


@lru_cache(maxsize=1 << 10)
def _sides(category: str) -> _Sides:
    categories = set(category.split(","))
    return _Sides(
        bool(categories & _ON_DEVICE),
        bool(categories & _CALLS),
        bool(categories & _RANGES),
        bool(categories & {"memory_copy", "gpu_memcpy"}),
    )


def _names(found: Slices, track: Track) -> str:
    """The name of a track behind those of the tracks that it lies in."""
    names, seen = [track.name], 0
    while track.parent is not None and track.parent in found.tracks and seen < len(found.tracks):
        track, seen = found.tracks[track.parent], seen + 1
        names.append(track.name)
    return " ".join(reversed(names))


def _thread(timeline: Timeline, found: Slices, number: int, track: Track) -> int:
    process, label = track.process, track.name or None
    seen = 0
    while process is None and track.parent in found.tracks and seen < len(found.tracks):
        track, seen = found.tracks[track.parent or 0], seen + 1
        process = track.process
    thread = found.tracks.get(number, Track()).thread
    return timeline.thread(process or 0, number if thread is None else thread, label)
