"""Perfetto's protobuf: rocprofv3 (``.pftrace``), omnitrace and ROCm Systems Profiler (``.proto``).

Categories say which side a slice is of: calls (``hip_api``, ``rocm_hip``), devices
(``kernel_dispatch``, ``device_hip``), ranges (``marker_api``, ``user``). A slice without a known
category is of a device where its track is named as a queue or stream of one, else of the host.
A kernel belongs to the call with its ``corr_id``, else to the one that a flow leads from.
"""

import re
from pathlib import Path

from pinchpoint.errors import HostileFile, UnreadableFile
from pinchpoint.importers._memory import PERFETTO_TIMES, must_fit
from pinchpoint.importers._packed import unpacked
from pinchpoint.importers._timeline import Timeline
from pinchpoint.importers._wire import MalformedMessage, fields
from pinchpoint.importers.health import Fact
from pinchpoint.importers.perfetto.packets import Slice, Slices, Track, Value, read_slices
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
_CORRELATION = ("corr_id", "correlation", "correlation_id")
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
        found = read_slices(memoryview(plain.read_bytes()))
    if not found.slices:
        raise UnreadableFile(
            f"{path}: a Perfetto trace without a single slice",
            hint="record track events: rocprofv3 --runtime-trace --output-format pftrace",
        )
    timeline, devices = Timeline(), set[int]()
    launched_by = _flows(found)
    for number, one in enumerate(found.slices):
        _add(timeline, devices, found, one, launched_by.get(number))
    facts = [Fact("cut-off")] if found.cut_off else []
    unclosed = sum(one.end_ns is None for one in found.slices)
    facts += [Fact("ranges-unclosed", unclosed)] if unclosed else []
    facts += [Fact("pairs-unmatched", found.unmatched)] if found.unmatched else []
    amd = any(
        set(one.category.split(",")) & {"hip_api", "kernel_dispatch", "rocm_hip"}
        for one in found.slices
    )
    source = Source(str(path), FORMAT, path.stat().st_size, found.cut_off)
    listed = [Device(n, vendor="amd" if amd else None) for n in sorted(devices)]
    return timeline.trace(source, listed, facts)


def _flows(found: Slices) -> dict[int, int]:
    """Positions of slices that a flow ends in, with a correlation for both ends."""
    begins: dict[int, int] = {}
    for number, one in enumerate(found.slices):
        for flow in one.flows:
            begins.setdefault(flow, number)
    ends = {}
    for number, one in enumerate(found.slices):
        for flow in (*one.flow_ends, *one.flows):
            if begins.get(flow, number) != number:
                ends[number] = ends[begins[flow]] = begins[flow] + 1
    return ends


def _add(
    timeline: Timeline, devices: set[int], found: Slices, one: Slice, flow: int | None
) -> None:
    begin, end = (_whole(one.notes.get(key)) for key in ("begin_ns", "end_ns"))
    begin, end = (begin, end) if begin and end else (one.begin_ns, one.end_ns)
    if end is None or end < begin:
        timeline.unusable += one.end_ns is not None
        return
    track = found.tracks.get(one.track, Track())
    categories = set(one.category.split(","))
    correlation = next((c for key in _CORRELATION if (c := _whole(one.notes.get(key)))), flow)
    name = one.name or "(unnamed)"
    if categories & _ON_DEVICE or (
        not categories & (_CALLS | _RANGES) and _QUEUE.search(track.name)
    ):
        numbers = {kind.upper(): int(n) for kind, n in _NUMBERED.findall(_names(found, track))}
        device = next((numbers[k] for k in ("AGENT", "GPU", "DEVICE") if k in numbers), 0)
        devices.add(device)
        copies = "memory_copy" in categories or "gpu_memcpy" in categories
        timeline.on_device(
            name,
            begin,
            end - begin,
            device,
            kind=DeviceKind.COPY if copies or name.startswith("Memcpy") else None,
            stream=numbers.get("QUEUE", numbers.get("STREAM", one.track % (1 << 31))),
            correlation=correlation,
        )
        return
    thread = _thread(timeline, found, one.track, track)
    if categories & _CALLS:
        timeline.call(name, begin, end - begin, thread, correlation)
    else:
        kind = HostKind.ANNOTATION if categories & _RANGES else HostKind.OPERATOR
        timeline.on_host(name, begin, end - begin, thread, kind)


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


def _whole(value: Value | None) -> int | None:
    if isinstance(value, int):
        return value
    text = value if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
