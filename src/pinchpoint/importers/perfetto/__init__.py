"""Perfetto's protobuf: rocprofv3 (``.pftrace``), omnitrace and ROCm Systems Profiler (``.proto``).

Categories say which side a slice is of: calls (``hip_api``, ``rocm_hip``), devices
(``kernel_dispatch``, ``device_hip``), ranges (``marker_api``, ``user``). A slice without a known
category is of a device where its track is named as a queue or stream of one, else of the host.
A kernel belongs to the call with its ``corr_id``, else to the one that a flow leads from.
"""

import re
from array import array
from collections.abc import Callable
from enum import IntFlag
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pinchpoint.errors import HostileFile, UnreadableFile
from pinchpoint.importers.assembly.timeline import UNKNOWN, Timeline, of_device
from pinchpoint.importers.files.memory import PERFETTO_TIMES, must_fit
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.files.wire import MalformedMessage, fields
from pinchpoint.importers.health import Fact
from pinchpoint.importers.perfetto.packets import (
    CORRELATIONS,
    NOT_KNOWN,
    Slices,
    read_slices,
)
from pinchpoint.importers.perfetto.sequences import Track
from pinchpoint.regex import regex
from pinchpoint.trace import Device, DeviceKind, HostKind, Source, Trace
from pinchpoint.trace.arrays import Array, Ints, Rows
from pinchpoint.trace.kinds import api_kind, without_version

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
_QUEUE = regex(r"\b(?:AGENT|GPU|DEVICE)\b.*\b(?:QUEUE|STREAM)\b|^stream \d+", re.IGNORECASE)
_NUMBERED = regex(r"\b(AGENT|GPU|DEVICE|QUEUE|STREAM)\b\s*\[?#?(\d{1,6})", re.IGNORECASE)
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
    timeline = Timeline()
    devices = _placed(timeline, found)
    facts = [Fact("cut-off")] if found.cut_off else []
    unclosed = found.end_ns.count(NOT_KNOWN)
    facts += [Fact("ranges-unclosed", unclosed)] if unclosed else []
    facts += [Fact("pairs-unmatched", found.unmatched)] if found.unmatched else []
    categories = {c for text in found.texts.freeze() for c in text.split(",")}
    amd = bool(categories & {"hip_api", "kernel_dispatch", "rocm_hip"})
    source = Source(str(path), FORMAT, path.stat().st_size, found.cut_off)
    listed = [Device(n, vendor="amd" if amd else None) for n in devices]
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


def _placed(timeline: Timeline, found: Slices) -> list[int]:
    """Every slice with an end as a row of the host, of calls or of a device; the devices' numbers.

    By column: one slice after another takes as long as reading the file.
    """
    texts = found.texts.freeze()
    numbers, track = np.unique(np.frombuffer(found.track, np.uint64), return_inverse=True)
    lanes = [_lane(found, number) for number in numbers.tolist()]
    side = _once(_column(found.category), lambda at: _side(texts[at]))
    is_queue = np.array([lane.is_queue for lane in lanes], np.bool_)[track]
    on_device = (side & _Side.DEVICE > 0) | (is_queue & (side & (_Side.CALL | _Side.RANGE) == 0))
    begin, end = _times(found)
    sound = (end != NOT_KNOWN) & (end >= begin)
    timeline.unusable += int(np.count_nonzero(~sound & (_column(found.end_ns) != NOT_KNOWN)))
    every = _Columns(texts, _column(found.name), begin, end - begin, side, _correlations(found))
    devices = _on_device(timeline, every, lanes, track, np.flatnonzero(sound & on_device))
    rows = np.flatnonzero(sound & ~on_device)
    thread = _once(track[rows], lambda at: _thread(timeline, found, int(numbers[at])))
    _on_host(timeline, every, rows, thread)
    return devices


class _Columns(NamedTuple):
    """What is told of each slice; ``name`` are positions in ``texts``."""

    texts: tuple[str, ...]
    name: Ints
    begin_ns: Ints
    lasts_ns: Ints
    side: Ints
    correlation: Ints

    def text(self, name: int) -> str:
        """What a slice is called."""
        return self.texts[name] or "(unnamed)"


def _on_device(
    timeline: Timeline, every: _Columns, lanes: "list[_Lane]", track: Rows, rows: Rows
) -> list[int]:
    copies = every.side[rows] & _Side.COPY > 0
    what = every.name[rows] * 2 + copies  # a kernel and a copy may have one name

    def told(at: int) -> tuple[int, str | None]:
        name = every.text(at >> 1)
        copy = at & 1 or name.startswith("Memcpy")
        return of_device(name, DeviceKind.COPY if copy else None)

    def collective(at: int) -> int:
        return UNKNOWN if (text := told(at)[1]) is None else timeline.names.id_of(text)

    lane, device = track[rows], np.array([lane.device for lane in lanes], np.int64)
    given = {
        "name": _once(what, lambda at: timeline.names.id_of(every.text(at >> 1))),
        "device": device[lane],
        "kind": _once(what, lambda at: told(at)[0]),
        "collective": _once(what, collective),
        "stream": np.array([lane.stream for lane in lanes], np.int64)[lane],
        "correlation": every.correlation[rows],
    }
    timeline.columns(timeline.operations, every.begin_ns[rows], every.lasts_ns[rows], given)
    return sorted(set(given["device"].tolist()))


def _on_host(timeline: Timeline, every: _Columns, rows: Rows, thread: Ints) -> None:
    calls, names = every.side[rows] & _Side.CALL > 0, timeline.names
    own, other = rows[calls], rows[~calls]
    given = {
        "name": _once(every.name[own], lambda at: names.id_of(without_version(every.text(at)))),
        "thread": thread[calls],
        "kind": _once(every.name[own], lambda at: int(api_kind(without_version(every.text(at))))),
        "correlation": every.correlation[own],
    }
    timeline.columns(timeline.calls, every.begin_ns[own], every.lasts_ns[own], given)
    kinds = np.where(every.side[other] & _Side.RANGE, HostKind.ANNOTATION, HostKind.OPERATOR)
    given = {
        "name": _once(every.name[other], lambda at: names.id_of(every.text(at))),
        "thread": thread[~calls],
        "kind": kinds.astype(np.int64),
    }
    timeline.columns(timeline.host, every.begin_ns[other], every.lasts_ns[other], given)


def _once(values: Array, answer: Callable[[int], int]) -> Ints:
    """The answer about each value; it is asked once about each, in the order of the values."""
    distinct, first, at = np.unique(values, return_index=True, return_inverse=True)
    answers = np.zeros(len(distinct), np.int64)
    for row in np.argsort(first).tolist():
        answers[row] = answer(int(distinct[row]))
    found: Ints = answers[at]
    return found


def _column(held: "array[int]") -> Ints:
    return np.array(held, np.int64)


def _times(found: Slices) -> tuple[Ints, Ints]:
    """Begins and ends: the device's own where they are noted, else those of the packets."""
    begin, end = (_noted(found, key) for key in ("begin_ns", "end_ns"))
    own = (begin > 0) & (end > 0)
    recorded = _column(found.begin_ns), _column(found.end_ns)
    return np.where(own, begin, recorded[0]), np.where(own, end, recorded[1])


def _correlations(found: Slices) -> Ints:
    """What a slice says itself, else what a flow says."""
    known = np.full(len(found), UNKNOWN, np.int64)
    for row, flow in _flows(found).items():
        known[row] = flow
    for key in reversed(CORRELATIONS):
        noted = _noted(found, key)
        known = np.where(noted > 0, noted, known)
    return known


def _noted(found: Slices, key: str) -> Ints:
    """What slices say of a key; NOT_KNOWN where they say nothing."""
    noted, held = np.full(len(found), NOT_KNOWN, np.int64), found.notes.get(key, ())
    noted[: len(held)] = held
    return noted


class _Lane(NamedTuple):
    """What slices of a track share."""

    is_queue: bool
    device: int
    stream: int


def _lane(found: Slices, number: int) -> _Lane:
    track = found.tracks.get(number, Track())
    numbers = {kind.upper(): int(n) for kind, n in _NUMBERED.findall(_names(found, track))}
    return _Lane(
        bool(_QUEUE.search(track.name)),
        next((numbers[k] for k in ("AGENT", "GPU", "DEVICE") if k in numbers), 0),
        numbers.get("QUEUE", numbers.get("STREAM", number % (1 << 31))),
    )


class _Side(IntFlag):
    """What a slice's categories say that it is."""

    DEVICE = 1
    CALL = 2
    RANGE = 4
    COPY = 8


_SIDES = (
    (_Side.DEVICE, _ON_DEVICE),
    (_Side.CALL, _CALLS),
    (_Side.RANGE, _RANGES),
    (_Side.COPY, frozenset(("memory_copy", "gpu_memcpy"))),
)


def _side(category: str) -> int:
    categories = set(category.split(","))
    return sum(int(side) for side, of in _SIDES if categories & of)


def _names(found: Slices, track: Track) -> str:
    """The name of a track behind those of the tracks that it lies in."""
    names, seen = [track.name], 0
    while track.parent is not None and track.parent in found.tracks and seen < len(found.tracks):
        track, seen = found.tracks[track.parent], seen + 1
        names.append(track.name)
    return " ".join(reversed(names))


def _thread(timeline: Timeline, found: Slices, number: int) -> int:
    held = track = found.tracks.get(number, Track())
    process, seen = track.process, 0
    while process is None and track.parent in found.tracks and seen < len(found.tracks):
        track, seen = found.tracks[track.parent or 0], seen + 1
        process = track.process
    thread = number if held.thread is None else held.thread
    return timeline.thread(process or 0, thread, held.name or None)
