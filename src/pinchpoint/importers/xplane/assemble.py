"""From planes to a trace: host lines become threads, streams of devices become device operations.

Times are those of the file, from the start of the profile. A line of a device that is no stream
(modules, steps, framework operations) repeats what its streams or ``XLA Ops`` say, and is left out.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pinchpoint.errors import UnreadableFile
from pinchpoint.frozen import dataclass
from pinchpoint.importers.assembly.soundness import (
    clocks,
    lost_launches,
    no_calls,
    orphans,
    sharing,
    stream_order,
    who,
)
from pinchpoint.importers.health import Fact, health_table
from pinchpoint.importers.xplane.host import HostRows, linked_tables
from pinchpoint.importers.xplane.operations import Row, compiled_row, table_of_rows
from pinchpoint.importers.xplane.programs import with_programs
from pinchpoint.importers.xplane.space import Event, Line, Plane, device_of, device_row
from pinchpoint.regex import regex
from pinchpoint.trace import DeviceKind, Names, Source, Table, Thread, Trace

# ------------------------------------------------------------------------------------------------
# Allocations of device memory, as XLA's allocator marks them on the host's threads.


_SIGN = {"MemoryAllocation": 1, "MemoryDeallocation": -1}
_DEVICE = regex(r"(?:GPU|TPU)_(\d{1,5})_")  # GPU_0_bfc
_MOST_BYTES = 1 << 62  # sums of two fit into 64 bits


def allocation_row(event: Event, time_ns: int, thread: int) -> dict[str, Any] | None:
    """A row of ``allocations``; None for other events, and for memory of unknown size."""
    sign, size = _SIGN.get(event.name), _whole(event, "allocation_bytes")
    if sign is None or size is None:
        return None
    device = _DEVICE.match(str(event.stats.get("allocator_name", "")))
    return {
        "time_ns": time_ns,
        "address": _whole(event, "addr"),
        "bytes": sign * size,
        "device": int(device[1]) if device else None,
        "allocated_bytes": _whole(event, "bytes_allocated"),
        "reserved_bytes": None,  # XLA's bytes_reserved is memory kept for stacks
        "thread": thread,
    }


def _whole(event: Event, stat: str) -> int | None:
    value = event.stats.get(stat)
    return value if isinstance(value, int) and 0 <= value < _MOST_BYTES else None


# ------------------------------------------------------------------------------------------------
# From planes to a trace: host lines become threads, streams of devices become device operations.


FORMAT = "xplane"

_DEVICE_PLANE = regex(r"/device:(\w+):(\d{1,5})$")
_NOT_THREADS = ("/host:metadata", "/host:__ScopeRangeCallStack__")
# Frames of the threads that ``pinchpoint run`` puts beside the program's (capture/process,
# capture/samples): they wait, or look at the others, and are none of its work.
_OF_PINCHPOINT = regex(
    r"\$(?:quiet_watch\.py:\d{1,9} _wait_while_it_fits|pace\.py:\d{1,9} (?:woke|pause_s))$"
)
_SURELY_A_DATE_NS = 10**17  # three years; no profile is that long
_LONGEST_STEP = 10  # digits
_LONGEST_NS = 1 << 61  # beyond it sums of times would not fit


@dataclass(frozen=True)
class _Placed:
    """An event with its times in ns; both ends rounded down, so that nesting survives."""

    event: Event
    start_ns: int
    duration_ns: int


def assemble(path: Path, planes: list[Plane]) -> Trace:
    """The trace."""
    names = Names()
    base = _base(planes)
    threads: list[Thread] = []
    host = HostRows(names)
    device: list[Row] = []
    compiled: list[Row] = []
    memory: list[Row] = []
    facts: list[Fact] = []
    asked: list[int] = []
    devices = []
    for plane in planes:
        found = _DEVICE_PLANE.match(plane.name)
        if found:
            devices.append(device_of(plane, int(found[2]), found[1]))
            for row, op in _of_device(path, plane, int(found[2]), base):
                device.append(row)
                compiled += op
        elif plane.name.startswith("/host:") and plane.name not in _NOT_THREADS:
            for line in plane.lines:
                if line.events.any_named(_OF_PINCHPOINT.match):
                    asked += _asked_to_stop(path, line, base)
                    continue
                process = str(plane.stats.get("process_id", ""))
                threads.append(Thread(process, str(line.id), line.name or None))
                for one in _placed(path, line, base):
                    host.add(one.event, one.start_ns, one.duration_ns, len(threads) - 1)
                    allocated = allocation_row(one.event, one.start_ns, len(threads) - 1)
                    memory += [allocated] if allocated else []
                    compiled += _compiled(one, None, line.name, [])
    host.steps.extend([] if host.steps else _steps_of_device(path, planes, base, threads))
    with_programs(compiled, (p for plane in planes for p in plane.programs))
    if not device:
        facts.append(Fact("no-device-activity" if devices else "cpu-only"))
    host_ops, api_calls, device_ops = linked_tables(host, device, names, max(asked, default=None))
    facts += _facts(api_calls, device_ops, tuple(threads), names)
    facts += who(device_ops, named=any(d.name for d in devices), rank=None)
    if not len(host_ops):
        facts.append(Fact("no-host-activity"))
    facts_of_run = {k: v for plane in planes for k, v in plane.stats.items() if k}
    return Trace(
        source=_source(path, facts_of_run),
        threads=tuple(threads),
        devices=tuple(devices),
        origin_ns=base or _origin(facts_of_run),
        host_ops=host_ops,
        api_calls=api_calls,
        device_ops=device_ops,
        compiled_ops=table_of_rows("compiled_ops", compiled, names) if compiled else None,
        steps=table_of_rows("steps", host.steps, names),
        allocations=table_of_rows("allocations", memory, names) if memory else None,
        health=health_table(facts, names),
        names=names.freeze(),
    )


_CLOSES = regex(r"\$recording\.py:\d{1,9} close$")


def _asked_to_stop(path: Path, line: Line, base: int) -> list[int]:
    """When ``pinchpoint run`` began to end the recording, for which it holds the main thread."""
    if not line.events.any_named(_CLOSES.match):
        return []
    return [one.start_ns for one in _placed(path, line, base) if _CLOSES.match(one.event.name)]


def _of_device(path: Path, plane: Plane, number: int, base: int) -> Iterator[tuple[Row, list[Row]]]:
    """What ran on a device, each with the compiled operation that it is, if it is one."""
    modules = _modules(path, plane, base)
    for line in _streams(plane):
        for one in _placed(path, line, base):
            placed = _named_as_xla_does(one) if line.name == _OF_A_TPU else one
            copy = _called_a_copy(placed.event)
            row = device_row(copy, placed.start_ns, placed.duration_ns, number, line.id)
            compiled = _compiled(placed, number, line.name, modules)
            if row["kind"] == DeviceKind.COPY:
                compiled = [one | {"copied_bytes": row["bytes"]} for one in compiled]
            yield row, compiled


def _facts(calls: Table, ops: Table, threads: tuple[Thread, ...], names: Names) -> Iterator[Fact]:
    """What launches, clocks and streams show. On a TPU the host's calls are not recorded."""
    yield from no_calls(calls, ops)
    yield from stream_order(ops)
    if len(calls):
        yield from lost_launches(calls, ops, names)
        yield from orphans(ops)
        yield from clocks(calls, ops)
        yield from sharing(calls, ops, threads)


def _source(path: Path, facts: dict[str, Any]) -> Source:
    version = facts.get("jax_version")
    return Source(
        str(path),
        FORMAT,
        path.stat().st_size,
        recorder="jax" if version else "xprof",
        recorder_version=str(version) if version else None,
        producer=f"jax {version}" if version else None,
    )


def _origin(facts: dict[str, Any]) -> int | None:
    start = facts.get("profile_start_time")
    return start if isinstance(start, int) and 0 < start < _LONGEST_NS else None


def _streams(plane: Plane) -> list[Line]:
    streams = [line for line in plane.lines if line.name.startswith("Stream")]
    return streams or [line for line in plane.lines if line.name == "XLA Ops"]


_OF_A_TPU = "XLA Ops"


def _modules(path: Path, plane: Plane, base: int) -> list[_Placed]:
    """The runs of compiled programs on a device, in order, where a line of its own has them."""
    lines = (line for line in plane.lines if line.name == "XLA Modules")
    return sorted((p for line in lines for p in _placed(path, line, base)), key=_start)


def _start(placed: _Placed) -> int:
    return placed.start_ns


def _compiled(one: _Placed, device: int | None, line: str, modules: Sequence[_Placed]) -> list[Row]:
    """The compiled operation that an event is; what a TPU does not say, the run around it does."""
    op = one.event.name if line == _OF_A_TPU else ""
    row = compiled_row(one.event.stats, one.start_ns, one.duration_ns, device, op)
    if row is None:
        return []
    row["kernel"] = one.event.name if device is not None else None
    if row["module"] is None and modules:
        at = bisect_right(modules, one.start_ns, key=_start) - 1
        around = modules[at] if at >= 0 else None
        if around and one.start_ns < around.start_ns + around.duration_ns:
            row["module"] = around.event.name.split("(")[0]
    return [row]


def _steps_of_device(
    path: Path, planes: Sequence[Plane], base: int, threads: list[Thread]
) -> list[Row]:
    """Steps as the first device with a line of them counts them, where the host marks none.

    They stand for markers on a thread of their own: TPUs are recorded without the host's calls.
    """
    for plane in planes:
        found = _DEVICE_PLANE.match(plane.name)
        line = next((x for x in plane.lines if found and x.name == "Steps"), None)
        placed = [] if line is None else sorted(_placed(path, line, base), key=_start)
        numbered = [(p, int(p.event.name)) for p in placed if _is_number(p.event.name)]
        if len(numbered) > 1:
            threads.append(Thread(plane.name, "Steps", "Steps"))
            where = len(threads) - 1
            return [
                {
                    "start_ns": p.start_ns,
                    "duration_ns": p.duration_ns,
                    "name": f"step {number}",
                    "thread": where,
                    "number": number,
                }
                for p, number in numbered
            ]
    return []


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < _LONGEST_STEP


def _named_as_xla_does(placed: _Placed) -> _Placed:
    """``fusion.3`` of ``%fusion.3 = f32[128]{0} fusion(...)``: TPUs write the whole instruction."""
    instruction = placed.event.name
    name = instruction.split(" = ")[0].lstrip("%")
    stats = placed.event.stats
    if copied := _copied(instruction, stats.get("bytes_accessed")):
        stats = {**stats, "memcpy_details": copied}
    return replace(placed, event=replace(placed.event, name=name, stats=stats))


# Host memory is space 5 of XLA's layouts: ``f32[8]{0:S(5)} copy-done(...)``. What a copy writes is
# its result, or the first of a tuple: ``(f32[8]{0}, f32[8]{0:S(5)}, u32[]) copy-start(...)``.
_OF_HOST = "S(5)"
_COPYING = regex(
    r" = \(?(?P<to>\w+\[[^\]]*\](?:\{[^}]*\})?).*?"
    r"\s(?P<how>copy|copy-start|copy-done|dynamic-(?:update-)?slice(?:-start|-done)?)\("
)
_BEGUN = "-start"


def _copied(instruction: str, size: object) -> str | None:
    """What XLA says of a copy to or from the host's memory, as a GPU's recording would.

    The bytes are those of its end: beginning one takes no time.
    """
    found = _COPYING.search(instruction)
    if found is None or _OF_HOST not in instruction:
        return None
    source, target = ("device", "pinned") if _OF_HOST in found["to"] else ("pinned", "device")
    bytes_moved = f" size:{size}" if size and not found["how"].endswith(_BEGUN) else ""
    return f"kind_src:{source} kind_dst:{target}{bytes_moved}"


def _called_a_copy(event: Event) -> Event:
    """A copy to or from the host's memory by the name that such copies have elsewhere."""
    details = str(event.stats.get("memcpy_details", ""))
    if not details or event.name.lower().startswith("memcpy"):
        return event
    way = "MemcpyD2H" if "kind_dst:pinned" in details else "MemcpyH2D"
    return replace(event, name=f"{way} ({event.name})")


def _base(planes: list[Plane]) -> int:
    """What to subtract: lines count from the start of the profile, or from 1970 in some writers."""
    starts = [line.start_ns for plane in planes for line in plane.lines if line.events]
    first = min(starts, default=0)
    return first if first > _SURELY_A_DATE_NS else 0


def _placed(path: Path, line: Line, base: int) -> Iterator[_Placed]:
    first = line.start_ns - base
    for event in line.events:
        start = first + event.offset_ps // 1000
        end = first + (event.offset_ps + event.duration_ps) // 1000
        if not (-_LONGEST_NS < start <= end < _LONGEST_NS):
            raise UnreadableFile(
                f"{path}: times that no recording has", hint="copy it again, or record it again"
            )
        yield _Placed(event, start, end - start)
