"""A folder that ``pinchpoint run`` wrote: its recording, with everything else the run knows.

The trace is that of the first rank. Telemetry becomes ``counters`` on the trace's clock, with
devices numbered as the trace numbers them; environment, unprofiled step times and data waits
become ``Trace.run``; problems of the run become health facts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers._telemetry import health_table
from pinchpoint.importers.open import load
from pinchpoint.importers.telemetry_log import collect
from pinchpoint.monitor.run_folder import (
    ENVIRONMENT_FILE,
    LOADER,
    METRICS_FILE,
    NCU,
    NSYS,
    PROCESSES,
    RUN_FILE,
    SCHEMA,
    TELEMETRY_FILE,
    TRACES,
)
from pinchpoint.trace import Names, RunFacts, Table, Trace, table

FORMAT = "run folder"

_LARGEST_DOCUMENT_BYTES = 32 << 20
_MOST_PROCESSES = 100_000


def claims(path: Path, head: bytes) -> bool:
    """A folder with a ``run.json``."""
    return path.is_dir() and (path / RUN_FILE).is_file()


def read(path: Path) -> Trace:
    """The trace of the first rank that recorded, with the facts of the run.

    Raises UnreadableFile if nothing was recorded; then the message says why.
    """
    run = _document(path / RUN_FILE)
    if run.get("schema") != SCHEMA:
        raise UnreadableFile(
            f"{path / RUN_FILE}: schema {run.get('schema')!r}, not {SCHEMA}",
            hint="read it with the version of Pinchpoint that wrote it",
        )
    processes = [_document(p) for p in sorted((path / PROCESSES).glob("rank*.json"))]
    process, recording = _first_recording(processes[:_MOST_PROCESSES])
    if process is not None and recording is not None:
        trace = load(_inside(path / TRACES, recording.get("file")))
    elif reports := sorted((path / NSYS).glob("*.nsys-rep")):
        trace = load(reports[-1])
        process, recording = processes[0] if processes else {}, {}
    else:
        raise UnreadableFile(f"{path}: {_why_nothing(run)}", hint="pinchpoint run --help")
    for report in sorted((path / NCU).glob("*.ncu-rep*"))[-1:]:
        trace = _with_kernel_counters(trace, load(report))
    trace = _with_telemetry(trace, path, process, recording)
    trace = _with_problems(trace, _texts(run.get("problems")))
    return replace(
        trace,
        source=replace(trace.source, path=str(path), format=f"{FORMAT} ({trace.source.format})"),
        rank=trace.rank if trace.rank is not None else _whole(process.get("rank")),
        world_size=trace.world_size or _whole(process.get("world_size")),
        run=_facts(path, run, process),
    )


def _facts(path: Path, run: Mapping[str, Any], process: Mapping[str, Any]) -> RunFacts:
    """``environment`` is env.json with the process, the loader's workers and the metrics beside."""
    environment = _document(path / ENVIRONMENT_FILE, missing_ok=True)
    workers = [_document(p) for p in sorted((path / LOADER).glob("worker.*.json"))[:4096]]
    environment["process"] = process
    environment["loader_workers"] = workers
    environment["metrics"] = _document(path / METRICS_FILE, missing_ok=True)
    steps = _mapping(process.get("steps"))
    return RunFacts(
        environment=environment,
        unprofiled_step_ns=_numbers(steps.get("before_ns")) + _numbers(steps.get("after_ns")),
        data_wait_ns=_numbers(steps.get("wait_ns")),
        command=_texts(run.get("command")),
    )


def _first_recording(
    processes: Sequence[dict[str, Any]],
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The lowest rank with a file, and the newest of its files."""
    for process in sorted(processes, key=lambda p: _whole(p.get("rank")) or 0):
        recordings = _documents(process.get("recordings"))
        files = [r for r in recordings if r.get("file")]
        if files:
            return process, files[-1]
    return None, None


def _why_nothing(run: Mapping[str, Any]) -> str:
    problems = _texts(run.get("problems"))
    if problems:
        return problems[0]
    if run.get("status") == "running":
        return "the run has not ended, or Pinchpoint was killed before it had"
    return "nothing was recorded"


def _with_kernel_counters(trace: Trace, profiled: Trace) -> Trace:
    """The trace with the counters of ncu beside its own events."""
    counters = profiled.kernel_counters
    if counters is None or not len(counters):
        return trace
    names = Names(trace.names)
    moved = np.array(names.ids_of(profiled.names), np.int32)
    columns = dict(counters.columns)
    for column in ("name", "metric", "unit"):
        columns[column] = np.where(counters.known(column), moved[counters[column]], 0)
    kept = {k: v for k, v in profiled.metadata.items() if k.startswith("ncu_")}
    return replace(
        trace,
        names=names.freeze(),
        kernel_counters=table("kernel_counters", columns, counters.missing),
        metadata={**trace.metadata, **kept},
    )


def _with_telemetry(
    trace: Trace, path: Path, process: Mapping[str, Any], recording: Mapping[str, Any]
) -> Trace:
    log = path / TELEMETRY_FILE
    if not log.is_file() or not (samples := collect(log)):
        return trace
    names = Names(trace.names)
    counters, first_ns = samples.counters(before=names)
    origin_ns = trace.origin_ns
    if origin_ns is None:  # the trace names no time of day; the process noted when it began
        origin_ns = _whole(recording.get("start_unix_ns")) or first_ns
    counters = _on_the_traces_terms(counters, first_ns - origin_ns, process, path)
    if trace.counters is not None and len(trace.counters):
        counters = _merged(trace.counters, counters)
    return replace(trace, names=names.freeze(), counters=counters)


def _on_the_traces_terms(
    counters: Table, shift_ns: int, process: Mapping[str, Any], path: Path
) -> Table:
    """Shift the clock, and number the device as the process did, by its uuid.

    Without a uuid to go by, numbers stay as the driver has them.
    """
    device = _mapping(process.get("device"))
    gpu = _mapping(_document(path / ENVIRONMENT_FILE, missing_ok=True).get("gpu"))
    uuids = [d.get("uuid") for d in _documents(gpu.get("devices"))]
    keep = np.ones(len(counters), np.bool_)
    numbers = counters["device"].copy()
    if device.get("uuid") in uuids:
        ours = counters.known("device") & (numbers == uuids.index(device["uuid"]))
        keep = ours | ~counters.known("device")
        numbers = np.where(ours, _whole(device.get("number")) or 0, numbers)
    return table(
        "counters",
        {
            "time_ns": counters["time_ns"][keep] + shift_ns,
            "name": counters["name"][keep],
            "value": counters["value"][keep],
            "device": numbers[keep],
        },
        {"device": ~counters.known("device")[keep]},
    )


def _merged(first: Table, second: Table) -> Table:
    time = np.concatenate((first["time_ns"], second["time_ns"]))
    order = np.argsort(time, kind="stable")
    columns = ("name", "value", "device", "rank")
    both = {c: np.concatenate((first[c], second[c]))[order] for c in columns}
    unknown = {
        c: ~np.concatenate((first.known(c), second.known(c)))[order] for c in ("device", "rank")
    }
    return table("counters", {"time_ns": time[order], **both}, unknown)


def _with_problems(trace: Trace, problems: Sequence[str]) -> Trace:
    if not problems:
        return trace
    names = Names(trace.names)
    rows = health_table([("run-problem", 1, problem) for problem in problems], names)
    if trace.health is not None and len(trace.health):
        rows = _stacked(trace.health, rows)
    return replace(trace, names=names.freeze(), health=rows)


def _stacked(first: Table, second: Table) -> Table:
    columns = {c: np.concatenate((first[c], second[c])) for c in first.columns}
    unknown = np.concatenate((~first.known("time_ns"), ~second.known("time_ns")))
    return table("health", columns, {"time_ns": unknown})


def _document(path: Path, *, missing_ok: bool = False) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():
            raise UnreadableFile(f"{path}: a folder, pipe or device", hint="copy it again")
        if path.stat().st_size > _LARGEST_DOCUMENT_BYTES:
            raise UnreadableFile(f"{path}: far too large for what it should hold")
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if missing_ok:
            return {}
        raise UnreadableFile(f"{path}: no such file", hint="copy the whole run folder") from None
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror or error}", hint="check it") from None
    except (ValueError, RecursionError):
        raise UnreadableFile(f"{path}: no JSON, or cut off", hint="copy it again") from None
    if not isinstance(document, dict):
        raise UnreadableFile(f"{path}: not the document that it should be", hint="copy it again")
    return document


def _inside(folder: Path, name: object) -> Path:
    """A file of the folder; a name that leads elsewhere is refused."""
    path = folder / str(name)
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
    except (RuntimeError, OSError):  # links that lead to themselves
        inside = False
    if not inside:
        raise UnreadableFile(
            f"{folder}: the recording {name!r} lies outside", hint="check run.json"
        )
    return path


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _documents(value: object) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _numbers(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(v for v in value if isinstance(v, int) and not isinstance(v, bool) and v >= 0)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(v) for v in value) if isinstance(value, list) else ()
