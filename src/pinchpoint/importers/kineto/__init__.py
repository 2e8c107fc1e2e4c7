"""Traces of ``torch.profiler`` (Kineto): Chrome trace events as JSON, 2021 to today.

``document`` finds the list of events, a scanner (``native`` or ``plain``) turns its text into
columns, ``assemble`` makes tables of them.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from pinchpoint.errors import HostileFile, NotThisFormat, UnreadableFile
from pinchpoint.importers.files.memory import give_back
from pinchpoint.importers.kineto.assemble import FORMAT, assemble
from pinchpoint.importers.kineto.facts import alike, devices_of_launches
from pinchpoint.importers.kineto.reading.document import (
    RECORD_AGAIN,
    DocumentFrame,
    close_events,
    open_events,
)
from pinchpoint.importers.kineto.reading.lenient import Boundless
from pinchpoint.importers.kineto.reading.scanner import (
    ScannerName,
    available,
    read_arguments,
    scan_events,
)
from pinchpoint.importers.kineto.reading.text import Text
from pinchpoint.importers.open import Progress
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import distinct
from pinchpoint.trace.window import Part

__all__ = ["FILES", "FORMAT", "NOT_READ", "READS", "claims", "read", "read_arguments"]

FILES = (
    ".json .json.gz .trace",
    "torch.profiler, Kineto, jax.profiler (.trace.json.gz), TensorFlow 1, viztracer, IBM's AIU",
)
READS: tuple[str, ...] = (
    "host",
    "calls",
    "device",
    "steps",
    "memory",
    "counters",
    "kernel counters",
    "compiled operations",
)
NOT_READ = "asynchronous events"

_SIGNS = (
    b'"traceEvents"',
    b'"schemaVersion"',
    b'"deviceProperties"',
    b'"displayTimeUnit"',
    b'"baseTimeNanoseconds"',
    b'"distributedInfo"',
    b'"trace_id"',
    b'"ph"',
)
_OUR_OWN = regex(rb'"schema"\s*:\s*"pinchpoint')
# rocprof 1 begins its list of events with an empty one, then names processes; rocpd reads it.
_ROCPROF = regex(rb'^\{ ?"traceEvents":\[\{\}\s*,\{"args":\{"name":"[^"]{1,40}"\},"ph":"M"')
# ONNX Runtime's categories; onnxruntime.py tells them closer.
_ONNX = regex(rb'^\[\s*\{\s*"cat"\s*:\s*"(Session|Node)"\s*,\s*"pid"')
# JSON of which something else is known: rocprofv3, load tests, lists of numbers, execution traces.
_OTHERS = regex(
    rb'"start(In|Enq|Compute)Ms"|"coll_perf"|"p2p_perf"|"avg_ts"|"cell_type"|"nbformat"|'
    rb'"rocprofiler-sdk-tool"|"request_throughput"|"request_rate"|"mean_ttft_ms"|"streaming_metrics"|"output_lens"|"averageMs"|^\[\s*\[|"schema"\s*:\s*"\d+\.\d+\.\d+(-chakra[\d.]*)?"'
)
_NAMES = (".json", ".json.gz", ".trace", ".trace.gz", ".json.tmp")


def claims(path: Path, head: bytes) -> bool:
    """JSON that looks like Chrome trace events, or that nothing else is known about."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[:1] not in (b"{", b"[") or _OUR_OWN.search(head):
        return False
    if (
        _ROCPROF.match(start)
        or (start[:1] == b"[" and _ONNX.match(start))
        or (b'"traceEvents"' not in start and _OTHERS.search(start))
    ):
        return False
    return any(sign in head for sign in _SIGNS) or path.name.lower().endswith(_NAMES)


def read(
    path: Path,
    progress: Progress | None = None,
    scanner: ScannerName | None = None,
    part: Part | None = None,
) -> Trace:
    """The trace; UnreadableFile if the file holds none.

    ``scanner`` forces one of the two readers, which give the same trace. Of a large file, what lies
    far from ``part`` is left out; the trace then has ``source.first_ns``.
    """
    scanner = scanner or available()
    frame = DocumentFrame()
    try:
        with Text(path, progress) as text:
            rest = open_events(text, frame)
            scanned = scan_events(text, rest, scanner, part=part)
            if scanned.ended:
                close_events(text, scanned.rest, frame)
    except Boundless:
        raise HostileFile(
            f"{path}: outside its events it nests deeper, or holds more, than any recorder writes",
            hint=RECORD_AGAIN,
        ) from None
    if scanned.left_out is not None and scanned.left_out.misjudged:
        return read(path, progress, scanner)
    trace = _with_devices(assemble(text, frame, scanned, scanner), scanner)
    del scanned
    if sum(map(len, filter(None, (trace.host_ops, trace.api_calls, trace.device_ops)))) > MANY_ROWS:
        give_back()
    return _with_content(path, trace, has_phases=not frame.bare_list or b'"ph"' in rest)


# From here on reading leaves tens of MB that nobody uses; of fewer, asking for pages anew, which
# takes some ms, is not worth it.
MANY_ROWS = 300_000
_LAUNCHES_READ = 16  # that say how many multiprocessors there are; all have to agree


def _with_devices(trace: Trace, scanner: ScannerName) -> Trace:
    """Of devices that the file does not describe, what the others or its first launches say."""
    ops = trace.device_ops
    if ops is not None and trace.devices:
        used = distinct(ops["device"]).tolist() if len(ops) else []
        return replace(trace, devices=alike(trace.devices, used))
    if ops is None or not ops.known("grid").any():
        return trace
    rows = np.flatnonzero(ops.known("grid"))[:_LAUNCHES_READ]
    launches = read_arguments(trace, ops["event"][rows].tolist(), scanner)
    return replace(trace, devices=devices_of_launches(distinct(ops["device"]).tolist(), launches))


def _with_content(path: Path, trace: Trace, *, has_phases: bool) -> Trace:
    tables = (trace.host_ops, trace.api_calls, trace.device_ops, trace.counters, trace.allocations)
    if any(table is not None and len(table) for table in tables):
        return trace
    if trace.source.first_ns is not None:  # there is something in another part
        return trace
    facts = () if trace.health is None else trace.health["fact"].tolist()
    if any(trace.names[fact] == "phases-unread" for fact in facts):
        raise UnreadableFile(
            f"{path}: events of requests alone (asynchronous ones, ph b and e), which belong to no"
            " thread and no device",
            hint="record what the program does meanwhile: pinchpoint run; its latency: pinchpoint"
            " bench serve",
        )
    if not has_phases:
        raise NotThisFormat(f"{path}: a JSON list, but not of traceEvents", hint=RECORD_AGAIN)
    raise UnreadableFile(
        f"{path}: a list of events without a single one that can be used",
        hint="record again, and export after the profiler has stopped",
    )
