"""What AMD's ``rocprofv3`` writes as JSON or CSV: kernels, copies, and calls that asked for them.

Times are nanoseconds of the host's monotonic clock. A kernel's grid counts work-items, not blocks.
With ``--kernel-trace`` alone no call is recorded. Of a folder of CSV files, one a domain, each can
be read alone: ``kernel_trace`` has what the device did.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.errors import HostileFile, UnreadableFile
from pinchpoint.importers.assembly.timeline import Timeline
from pinchpoint.importers.files.memory import ROCPROF_JSON_TIMES, TABLE_TIMES, must_fit
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.health import Fact
from pinchpoint.regex import regex
from pinchpoint.trace import Device, DeviceKind, HostKind, MemoryKind, Source, Trace

FORMAT = "rocprofv3"
FILES = ("results.json kernel_trace.csv", "rocprofv3 --output-format json|csv")
READS: tuple[str, ...] = ("host", "calls", "device", "steps")
NOT_READ = "counters (what they were counted on is read), PC samples"

_JSON_SIGN = b'"rocprofiler-sdk-tool"'
_GPU = 2  # agents: 1 is a CPU
_MOST_JSON_BYTES = 4 << 30  # read at once; a hundred million kernels
_CSV_FIELD_BYTES = 1 << 20  # a demangled name can be long; a field of this length is damage
_LONGEST_HEADER = 40  # columns
_TIMES = ("start_timestamp", "end_timestamp")
_NUMBER = regex(r"(\d{1,9})\s*$")
_KERNELS, _TRACES = "*kernel_trace.csv", "*_trace.csv"
_MOST_FILES = 1000  # of a folder: seven domains of each process of a machine
_COPY = {
    "HOSTTODEVICE": "Memcpy HtoD",
    "DEVICETOHOST": "Memcpy DtoH",
    "DEVICETODEVICE": "Memcpy DtoD",
}
_H, _D = int(MemoryKind.HOST), int(MemoryKind.DEVICE)
_ENDS = {"Memcpy HtoD": (_H, _D), "Memcpy DtoH": (_D, _H), "Memcpy DtoD": (_D, _D)}


def claims(path: Path, head: bytes) -> bool:
    """The tool's own key, a CSV header with its times and ids, or a folder of such files."""
    if not head and path.is_dir():
        return any(path.glob(_KERNELS))
    if _JSON_SIGN in head[:4096]:
        return True
    first = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].lower()
    return b"start_timestamp" in first and b"end_timestamp" in first and b"correlation_id" in first


def read(path: Path) -> Trace:
    """The trace of one process, of one CSV file, or of the CSV files of a folder together."""
    if path.is_dir():
        files = sorted(p for p in path.glob(_TRACES) if p.is_file())[:_MOST_FILES]
        return _of_csv(path, files)
    with unpacked(path) as plain:
        with plain.open("rb") as file:
            start = file.read(64).lstrip()
        if start[:1] == b"{":
            return _of_json(path, plain)
        return _of_csv(path, [plain])


# ------------------------------------------------------------------------------------------------
# JSON: one element a process.


def _of_json(path: Path, plain: Path) -> Trace:
    if plain.stat().st_size > _MOST_JSON_BYTES:
        raise HostileFile(
            f"{path}: larger than {_MOST_JSON_BYTES >> 30} GB", hint="record fewer steps"
        )
    must_fit(path, plain.stat().st_size, ROCPROF_JSON_TIMES)
    try:
        document = msgspec.json.decode(plain.read_bytes())["rocprofiler-sdk-tool"]
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableFile(
            f"{path}: cut off or broken JSON ({error})", hint="copy it again, or record it again"
        ) from None
    timeline = Timeline()
    devices: dict[int, Device] = {}
    for process in document if isinstance(document, list) else [document]:
        _process(timeline, devices, process)
    return _finished(path, timeline, devices)


def _process(timeline: Timeline, devices: dict[int, Device], process: dict[str, Any]) -> None:
    numbers = _agents(devices, process.get("agents") or [])
    records = process.get("buffer_records") or {}
    names = {
        symbol.get("kernel_id"): symbol.get("formatted_kernel_name") or symbol.get("kernel_name")
        for symbol in process.get("kernel_symbols") or []
    }
    pid = (process.get("metadata") or {}).get("pid", 0)
    strings = process.get("strings") or {}
    spelt = strings.get("buffer_records") or []
    markers = {item.get("key"): item.get("value") for item in strings.get("marker_api") or []}
    for row in records.get("kernel_dispatch") or []:
        _dispatch(timeline, row, names, numbers)
    for row in records.get("memory_copy") or []:
        _copy(timeline, row, spelt, numbers)
    for domain in ("hip_api", "hsa_api", "rccl_api", "marker_api"):
        for row in records.get(domain) or []:
            _call(timeline, row, domain, pid, spelt, markers)


def _agents(devices: dict[int, Device], agents: list[dict[str, Any]]) -> dict[int, int]:
    """Handles of GPUs to device numbers, as HIP counts them."""
    numbers: dict[int, int] = {}
    for agent in agents:
        if agent.get("type") != _GPU:
            continue
        number = agent.get("logical_node_type_id", len(numbers))
        numbers[agent["id"]["handle"]] = number
        devices[number] = Device(
            number=number,
            name=agent.get("product_name") or agent.get("name"),
            multiprocessors=agent.get("cu_count"),
            vendor="amd",
            clock_hz=(agent.get("max_engine_clk_fcompute") or 0) * 1e6 or None,
        )
    return numbers


def _span(row: dict[str, Any]) -> tuple[int, int]:
    return row["start_timestamp"], row["end_timestamp"] - row["start_timestamp"]


def _dispatch(
    timeline: Timeline, row: dict[str, Any], names: dict[Any, Any], numbers: dict[int, int]
) -> None:
    info = row["dispatch_info"]
    block, items = info["workgroup_size"], info["grid_size"]
    stream = row.get("stream_id") or info["queue_id"]
    name = names.get(info["kernel_id"])
    timeline.unnamed += not name
    timeline.on_device(
        str(name or f"kernel {info['kernel_id']}").removesuffix(".kd"),
        *_span(row),
        device=numbers.get(info["agent_id"]["handle"], 0),
        stream=stream["handle"],
        correlation=row["correlation_id"]["internal"],
        grid=triple([-(-items[a] // max(block[a], 1)) for a in "xyz"]),
        block=triple([block[a] for a in "xyz"]),
        shared_bytes=info.get("group_segment_size"),
    )


def triple(values: list[int]) -> str:
    """A grid or block as the tables spell it."""
    return "[" + ",".join(map(str, values)) + "]"


def copy_named(said: str) -> tuple[str, int | None, int | None]:
    """A copy's name as elsewhere, and the kinds of memory it goes from and to."""
    bare = said.upper().replace("_", "")
    name = next((ours for theirs, ours in _COPY.items() if theirs in bare), said or "Memcpy")
    return name, *_ENDS.get(name, (None, None))


def _copy(
    timeline: Timeline, row: dict[str, Any], spelt: list[Any], numbers: dict[int, int]
) -> None:
    name, source, target = copy_named(_operation(row, spelt))
    ends = [
        numbers.get((row.get(f"{end}_agent_id") or {}).get("handle", -1)) for end in ("dst", "src")
    ]
    timeline.on_device(
        name,
        *_span(row),
        device=next((n for n in ends if n is not None), 0),
        kind=DeviceKind.COPY,
        stream=(row.get("stream_id") or {}).get("handle"),
        correlation=row["correlation_id"]["internal"],
        bytes=row.get("bytes"),
        from_memory=source,
        to_memory=target,
    )


def _call(
    timeline: Timeline,
    row: dict[str, Any],
    domain: str,
    pid: object,
    spelt: list[Any],
    markers: dict[Any, Any],
) -> None:
    correlation = row["correlation_id"]["internal"]
    thread = timeline.thread(pid, row["thread_id"])
    if domain == "marker_api":
        text = markers.get(correlation) or _operation(row, spelt)
        timeline.on_host(str(text), *_span(row), thread, HostKind.ANNOTATION)
    else:
        timeline.call(_operation(row, spelt), *_span(row), thread, correlation)


def _operation(row: dict[str, Any], spelt: list[Any]) -> str:
    try:
        return str(spelt[row["kind"]]["operations"][row["operation"]])
    except (IndexError, KeyError, TypeError):
        return f"operation {row.get('operation')}"


# ------------------------------------------------------------------------------------------------
# CSV: a file a domain, whose columns change with the version.


def _of_csv(path: Path, files: Sequence[Path]) -> Trace:
    must_fit(path, sum(file.stat().st_size for file in files), TABLE_TIMES)
    timeline = Timeline()
    devices: dict[int, Device] = {}
    counted: set[tuple[str, str]] = set()
    for row in (row for file in files for row in table_rows(path, file, timeline, lower=True)):
        if "counter_name" in row:  # a row each counter of a dispatch
            dispatch = row.get("dispatch_id", ""), row.get(_TIMES[0], "")
            if dispatch in counted:
                continue
            counted.add(dispatch)
        try:
            start, end = (int(row[column]) for column in _TIMES)
        except (ValueError, KeyError):
            timeline.unusable += 1
            continue
        kind = (row.get("kind") or row.get("domain") or "").upper()
        if "kernel_name" in row:
            _csv_kernel(timeline, devices, row, (start, end - start))
        elif "MEMORY_COPY" in kind or "direction" in row:
            _csv_copy(timeline, row, (start, end - start))
        else:
            _csv_call(timeline, row, (start, end - start), kind)
    facts = [Fact("kernels-alone", len(counted))] if counted else []
    if path.is_file() and len(timeline.calls) and not len(timeline.operations):
        facts.append(Fact("calls-alone"))
    return _finished(path, timeline, devices, facts)


def table_rows(
    path: Path, plain: Path, timeline: Timeline, *, lower: bool = False
) -> Iterator[dict[str, str]]:
    """The rows of a CSV file by the titles of its columns, these in small letters if asked."""
    csv.field_size_limit(_CSV_FIELD_BYTES)
    try:
        with io.TextIOWrapper(plain.open("rb"), "utf-8-sig", "replace", newline="") as file:
            reader = csv.reader(file)
            header = [cell.strip() for cell in next(reader, [])[:_LONGEST_HEADER]]
            header = [cell.lower() for cell in header] if lower else header
            for cells in reader:
                if len(cells) == len(header):
                    yield dict(zip(header, cells, strict=True))
                elif cells:
                    timeline.cut += 1
    except csv.Error as error:
        raise UnreadableFile(f"{path}: damaged CSV ({error})", hint="copy it again") from None


def _csv_kernel(
    timeline: Timeline, devices: dict[int, Device], row: dict[str, str], span: tuple[int, int]
) -> None:
    device = _last_number(row.get("agent_id")) or 0
    devices.setdefault(device, Device(number=device, vendor="amd"))
    block = [_last_number(row.get(f"workgroup_size_{a}")) for a in "xyz"]
    items = [_last_number(row.get(f"grid_size_{a}")) for a in "xyz"]
    stream = _last_number(row.get("stream_id"))
    known = None not in (*block, *items)
    timeline.on_device(
        row["kernel_name"].removesuffix(".kd") or "(unnamed)",
        *span,
        device=device,
        stream=_last_number(row.get("queue_id")) if stream is None else stream,
        correlation=_last_number(row.get("correlation_id")),
        grid=triple([-(-i // max(b, 1)) for i, b in zip(items, block, strict=True)])  # type: ignore[operator,type-var]
        if known
        else None,
        block=triple(block) if known else None,  # type: ignore[arg-type]
        registers=_last_number(row.get("vgpr_count")),
        shared_bytes=_last_number(row.get("lds_block_size") or row.get("group_segment_size")),
    )


def _csv_copy(timeline: Timeline, row: dict[str, str], span: tuple[int, int]) -> None:
    name, source, target = copy_named((row.get("direction") or row.get("function") or "").upper())
    ends = [_last_number(row.get(f"{end}_agent_id")) for end in ("destination", "source")]
    host_first = name == "Memcpy DtoH"
    timeline.on_device(
        name,
        *span,
        device=(ends[1] if host_first else ends[0]) or 0,
        kind=DeviceKind.COPY,
        stream=_last_number(row.get("stream_id")),
        correlation=_last_number(row.get("correlation_id")),
        from_memory=source,
        to_memory=target,
    )


def _csv_call(timeline: Timeline, row: dict[str, str], span: tuple[int, int], kind: str) -> None:
    thread = timeline.thread(row.get("process_id", ""), row.get("thread_id", ""))
    name = row.get("function") or "(unnamed)"
    if "MARKER" in kind or "ROCTX" in kind:
        timeline.on_host(name, *span, thread, HostKind.ANNOTATION)
    else:
        timeline.call(name, *span, thread, _last_number(row.get("correlation_id")))


def _last_number(text: str | None) -> int | None:
    """``1`` and ``Agent 7`` both name a device."""
    found = _NUMBER.search(text or "")
    return int(found[1]) if found else None


def _finished(
    path: Path, timeline: Timeline, devices: dict[int, Device], facts: Sequence[Fact] = ()
) -> Trace:
    if not any(map(len, (timeline.host, timeline.calls, timeline.operations))):
        raise UnreadableFile(
            f"{path}: rocprofv3 recorded nothing",
            hint="rocprofv3 --runtime-trace --kernel-trace --output-format json -- python train.py",
        )
    used = set(timeline.operations.columns.get("device", ()))
    source = Source(str(path), FORMAT, _bytes(path), recorder="rocprofv3")
    return timeline.trace(source, [devices[n] for n in sorted(used & set(devices))], facts=facts)


def _bytes(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None
