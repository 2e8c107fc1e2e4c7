"""The recording in the Trace Event format that Perfetto and ``chrome://tracing`` open.

Findings and steps are tracks of their own. Times are microseconds with three decimals, which is
what the format has.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from pinchpoint.analysis.steps import steps
from pinchpoint.report.document import Report
from pinchpoint.report.plain import plain
from pinchpoint.trace import DeviceKind, HostKind, Table, Trace

NAME_LIMIT = 1000  # characters
_HOST, _DEVICE, _OURS = 1, 1000, 1  # process numbers: host, devices from 1000 on; our own tracks
_STEPS, _FINDINGS = 1_000_001, 1_000_002  # threads of our own tracks
_CHUNK = 20_000


def chrome(trace: Trace, report: Report) -> Iterator[bytes]:
    """The file in pieces."""
    names = [plain(name, NAME_LIMIT) for name in trace.names]
    yield b'{"displayTimeUnit":"ns","traceEvents":[\n'
    yield msgspec.json.encode(_meta("process_name", _HOST, 0, "host"))
    for piece in _pieces(trace, report, names):
        if piece:
            yield b",\n" + b",\n".join(msgspec.json.encode(event) for event in piece)
    yield b"\n]}\n"


def _pieces(trace: Trace, report: Report, names: list[str]) -> Iterator[list[dict[str, Any]]]:
    yield list(_tracks(trace))
    yield [*_step_events(trace), *_finding_events(report)]
    kinds = {int(kind): kind.name.lower() for kind in HostKind}
    if trace.host_ops is not None:
        yield from _slices(trace.host_ops, names, kinds)
    if trace.api_calls is not None:
        yield from _slices(trace.api_calls, names, {})
    if trace.device_ops is not None:
        yield from _slices(trace.device_ops, names, {int(k): k.name.lower() for k in DeviceKind})


def _meta(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _tracks(trace: Trace) -> Iterator[dict[str, Any]]:
    for number, thread in enumerate(trace.threads):
        yield _meta("thread_name", _HOST, number, plain(thread.label or f"thread {thread.thread}"))
    yield _meta("thread_name", _OURS, _STEPS, "steps (Pinchpoint)")
    yield _meta("thread_name", _OURS, _FINDINGS, "findings (Pinchpoint)")
    for device in trace.devices:
        label = plain(f"device {device.number} {device.name or ''}".rstrip())
        yield _meta("process_name", _DEVICE + device.number, 0, label)


def _step_events(trace: Trace) -> Iterator[dict[str, Any]]:
    found = steps(trace)
    if found.how == "none":
        return
    for number, start, end in zip(found.number, found.start_ns, found.end_ns, strict=True):
        yield {
            "ph": "X",
            "cat": "step",
            "name": f"step {number}",
            "pid": _OURS,
            "tid": _STEPS,
            "ts": int(start) / 1000,
            "dur": int(end - start) / 1000,
        }


def _finding_events(report: Report) -> Iterator[dict[str, Any]]:
    for finding in report.findings:
        for fact in finding.evidence:
            if fact.at_ns is None:
                continue
            yield {
                "ph": "i",
                "s": "p",
                "cat": "finding",
                "name": finding.id,
                "pid": _OURS,
                "tid": _FINDINGS,
                "ts": fact.at_ns / 1000,
                "args": {"summary": plain(finding.summary, 600), "fix": plain(finding.fix, 600)},
            }


def _slices(rows: Table, names: list[str], kinds: dict[int, str]) -> Iterator[list[dict[str, Any]]]:
    on_device = rows.name == "device_ops"
    for first in range(0, len(rows), _CHUNK):
        part = rows.take(np.arange(first, min(first + _CHUNK, len(rows))))
        lane = part.filled("stream", 0) if on_device else part["thread"]
        process = _DEVICE + part["device"] if on_device else np.full(len(part), _HOST)
        columns = (part["name"], part["kind"], process, lane, part["start_ns"], part["duration_ns"])
        yield [
            {
                "ph": "X",
                "cat": kinds.get(kind, "call"),
                "name": names[name],
                "pid": pid,
                "tid": tid,
                "ts": start / 1000,
                "dur": duration / 1000,
            }
            for name, kind, pid, tid, start, duration in zip(
                *(column.tolist() for column in columns), strict=True
            )
        ]
