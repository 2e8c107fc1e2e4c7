"""Small Kineto documents for tests, and a strict comparison of traces."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from pinchpoint.importers.kineto.assemble import assemble
from pinchpoint.importers.kineto.reading.document import DocumentFrame, close_events, open_events
from pinchpoint.importers.kineto.reading.scanner import available, scan_events
from pinchpoint.importers.kineto.reading.text import Text
from pinchpoint.trace import TABLES, Trace

SCANNERS = ["native", "plain"] if available() == "native" else ["plain"]
GPU = {"place": (0, 7), "device": 0, "stream": 7}


def event(
    name: str, cat: str, ts: Any, dur: Any, *, place: Any = (10, 10), **args: Any
) -> dict[str, Any]:
    """A complete event; ``args`` with underscores in place of blanks."""
    at = {"ph": "X", "cat": cat, "name": name, "pid": place[0], "tid": place[1]}
    return at | {"ts": ts, "dur": dur, "args": {k.replace("_", " "): v for k, v in args.items()}}


def op(name: str, ts: Any, dur: Any, **args: Any) -> dict[str, Any]:
    """An operator on the host."""
    return event(name, "cpu_op", ts, dur, **args)


def call(name: str, ts: Any, dur: Any, correlation: int, **args: Any) -> dict[str, Any]:
    """A runtime call."""
    return event(name, "cuda_runtime", ts, dur, correlation=correlation, **args)


def kernel(name: str, ts: Any, dur: Any, correlation: int, **args: Any) -> dict[str, Any]:
    """A kernel on stream 7 of device 0."""
    return event(name, "kernel", ts, dur, correlation=correlation, **(GPU | args))


def step(number: int, ts: Any, dur: Any) -> dict[str, Any]:
    """A marker of the profiler."""
    return event(f"ProfilerStep#{number}", "user_annotation", ts, dur)


def launched(name: str, at: float, runs_at: float, dur: float, correlation: int) -> list[Any]:
    """A launch and its kernel."""
    return [
        call("cudaLaunchKernel", at, 1, correlation),
        kernel(name, runs_at, dur, correlation),
    ]


def document(*events: Any, **frame: Any) -> str:
    """The text of an object with these events."""
    return json.dumps({"schemaVersion": 1, **frame, "traceEvents": list(events)})


def written(folder: Path, text: str | bytes, name: str = "trace.json") -> Path:
    """A file with this text; gzipped if the name says so."""
    raw = text.encode() if isinstance(text, str) else text
    path = folder / name
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def read_with(path: Path, scanner: Any, block_bytes: int | None = None) -> Trace:
    """Read like ``kineto.read``, but with blocks of a chosen size, and empty traces as well."""
    frame = DocumentFrame()
    with Text(path) as text:
        scanned = scan_events(text, open_events(text, frame), scanner, block_bytes)
        if scanned.ended:
            close_events(text, scanned.rest, frame)
    return assemble(text, frame, scanned, scanner)


def differences(a: Trace, b: Trace) -> list[str]:
    """What differs between two traces; nothing if they are the same."""
    facts = ("names", "threads", "devices", "origin_ns", "rank", "world_size")
    facts += ("collective_backend",)
    found = [fact for fact in facts if getattr(a, fact) != getattr(b, fact)]
    for fact in ("truncated", "recorder", "recorder_version", "producer"):
        found += [fact] * (getattr(a.source, fact) != getattr(b.source, fact))
    for name, columns in TABLES.items():
        one, other = getattr(a, name, None), getattr(b, name, None)
        if one is None or other is None:
            found += [name] * (one is not other)
        elif len(one) != len(other):
            found.append(f"{name}: {len(one)} and {len(other)} rows")
        else:
            found += [f"{name}.{c}" for c in columns if not _same_column(one, other, c)]
    return found


def _same_column(one: Any, other: Any, column: str) -> bool:
    known = one.known(column)
    return np.array_equal(known, other.known(column)) and np.array_equal(
        one[column][known], other[column][known]
    )
