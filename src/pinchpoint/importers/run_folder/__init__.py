"""A folder that ``pinchpoint run`` wrote: its recording, with everything else the run knows.

The trace is that of the first rank. Telemetry becomes ``counters`` on the trace's clock, with
devices numbered as the trace numbers them; environment, unprofiled step times and data waits
become ``Trace.run``; problems of the run become health facts.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pinchpoint.errors import OutOfMemory, UnreadableFile
from pinchpoint.importers.open import load
from pinchpoint.importers.run_folder.documents import Documents, documents_of
from pinchpoint.importers.run_folder.facts import (
    device_record,
    process_of,
    run_facts,
    timed_steps_ns,
)
from pinchpoint.importers.run_folder.samples import run_samples, samples_of
from pinchpoint.importers.run_folder.values import run_values, values_beside
from pinchpoint.importers.telemetry._samples import health_table
from pinchpoint.importers.telemetry.log import collect
from pinchpoint.run_folder.documents import (
    EnvironmentDocument,
    ProcessDocument,
    ReadDocument,
    RecordingNote,
)
from pinchpoint.run_folder.layout import (
    MEMORY,
    NAMES,
    NCU,
    NSYS,
    RUN_FILE,
    SAMPLES,
    TELEMETRY_FILE,
    TRACES,
    VALUES,
)
from pinchpoint.trace import (
    Names,
    RunFacts,
    Source,
    Table,
    Trace,
    table,
)
from pinchpoint.trace.durations import duration
from pinchpoint.trace.packages import with_installed

# ------------------------------------------------------------------------------------------------
# A folder that ``pinchpoint run`` wrote: its recording, with everything else the run knows.


FORMAT = "run folder"
FILES = ("a folder with run.json", "pinchpoint run")
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
NOT_READ = ""


def claims(path: Path, head: bytes) -> bool:
    """A folder with a ``run.json``."""
    return path.is_dir() and (path / RUN_FILE).is_file()


def read(path: Path) -> Trace:
    """The trace of the first rank that recorded, with the facts of the run.

    Raises UnreadableFile if nothing was recorded; then the message says why.
    """
    found = documents_of(path)
    process, recording, trace, unread = _recorded(path, found)
    own = process.document
    seen, cut = run_samples(path, own), None
    if seen is not None and seen.looks >= FEWEST_LOOKS and (cut := _cut(own, recording, trace)):
        recording, trace = RecordingNote(), _samples_alone(path)
    for report in sorted((path / NCU).glob("*.ncu-rep*"))[-1:]:
        trace = _with_kernel_counters(trace, load(report))
    trace = _with_telemetry(trace, path, own, recording, found.environment.document)
    windows = _windows(path, own)
    damaged = [window for window in windows.values() if isinstance(window, str)]
    if not _is_of_a_program(trace):  # then there is nothing that names belong to
        if recording.file:
            damaged.append(f"{TRACES}/{recording.file} holds nothing of what ran: another's copy?")
        if any(isinstance(window, Trace) for window in windows.values()):
            damaged.append(f"without the times, {NAMES}/ is left out; its files can be read alone")
        windows = {}
    samples, values = run_samples(path, own), run_values(path, own)
    installed = () if samples is None else samples.installed
    trace = with_installed(trace, installed)
    windows = {
        name: with_installed(window, installed) if isinstance(window, Trace) else window
        for name, window in windows.items()
    }
    unread += _left_out(path, own, {SAMPLES: samples, VALUES: values})
    said = (*found.problems, *damaged, *((cut,) if cut else ()))
    facts_of_it = [("run-problem", problem) for problem in said]
    facts_of_it += [("run-document-damaged", sentence) for sentence in (*found.unread, *unread)]
    trace = _with_health(trace, facts_of_it)
    facts = run_facts(
        found.run.document,
        own,
        found.environment.document,
        [worker.document for worker in found.workers],
        found.metrics.document,
    )
    rare = None if own.rare is None else f"{NAMES}/{own.rare.file}"
    facts = replace(facts, samples=samples, rare_recording=rare, values=values)
    return replace(
        trace,
        source=replace(trace.source, path=str(path), format=f"{FORMAT} ({trace.source.format})"),
        rank=trace.rank if trace.rank is not None else own.rank,
        world_size=trace.world_size or own.world_size,
        run=replace(
            facts,
            documents=found.for_display(process),
            named=_with_facts(windows.get("named"), facts),
            late=_with_facts(windows.get("late"), facts),
            rare=_with_facts(windows.get("rare"), facts),
            memory=None if trace.snapshot is not None else _memory(_snapshot(path, own)),
        ),
    )


def _left_out(path: Path, process: ProcessDocument, parts: Mapping[str, object]) -> Iterator[str]:
    """Sentences about what the process noted beside and what cannot be read."""
    for part, found in parts.items():
        noted = sorted((path / part).glob(f"rank*.{process.pid}.json"))
        if found is None and noted:
            yield f"{part}/{noted[0].name}: cannot be read, and is left out"


def _recorded(
    path: Path, found: Documents
) -> tuple[ReadDocument[ProcessDocument], RecordingNote, Trace, list[str]]:
    """The first process whose recording can be read, and what cannot; UnreadableFile for none."""
    unread: list[UnreadableFile] = []
    for process, recording in found.recordings():
        try:
            trace = load(_inside(path / TRACES, recording.file or ""))
        except OutOfMemory:
            raise
        except UnreadableFile as error:
            unread.append(error)
        else:
            said = [f"{TRACES}/{str(one).rpartition('/')[2]}" for one in unread]
            return process, recording, trace, said
    if unread:
        raise unread[0]
    process = found.first()
    if reports := sorted((path / NSYS).glob("*.nsys-rep")):
        trace = load(reports[-1])
    elif snapshot := _snapshot(path, process.document):
        trace = load(snapshot)
    elif run_samples(path, process.document) is not None:
        trace = _samples_alone(path)
    else:
        raise UnreadableFile(f"{path}: {found.why_nothing()}", hint="pinchpoint run --help")
    return process, RecordingNote(), trace, []


def _samples_alone(path: Path) -> Trace:
    return Trace(Source(str(path), "samples", recorder="pinchpoint"), ())


# Of the shortest step of the run: a recording of the CPU that is shorter shows a part of a step,
# and which part is chance. Looks at the threads have seen all of it.
WHOLE_STEP_RATIO = 0.5
FEWEST_LOOKS = 20  # of fewer, half of them may be a quarter or three quarters of the run


def _cut(process: ProcessDocument, recording: RecordingNote, trace: Trace) -> str | None:
    """What to say of a recording that ended inside of one long step; None for others."""
    least_ns, on_device = process.steps.run.least, trace.device_ops is not None
    begun, ended = recording.start_unix_ns, recording.end_unix_ns
    if on_device or recording.steps or least_ns is None or begun is None or ended is None:
        return None
    if ended - begun >= WHOLE_STEP_RATIO * least_ns:
        return None
    return (
        f"the recording of operators came to its limit after {duration(ended - begun)} of a step"
        f" that takes {duration(least_ns)} or more, so looks at the threads are judged alone;"
        f" {TRACES}/{recording.file} can be read by itself"
    )


def _snapshot(path: Path, process: ProcessDocument) -> Path | None:
    """The allocator's snapshot of a process: of a request that failed, else of the end."""
    rank = process.rank or 0
    found = sorted((path / MEMORY).glob("*.pickle"), key=lambda p: (".end." in p.name, p.name))
    mine = [p for p in found if p.name.startswith(f"rank{rank:05d}")]
    return next(iter(mine or found), None)


def _memory(snapshot: Path | None) -> Trace | None:
    """A snapshot; None if there is none, or it is damaged: the times stand without it."""
    try:
        return None if snapshot is None else load(snapshot)
    except UnreadableFile:
        return None


def _windows(path: Path, process: ProcessDocument) -> dict[str, Trace | str]:
    """What else was recorded, by its name in ``RunFacts``; what is wrong with one that is there.

    The times stand without them.
    """
    notes = {"named": process.named, "late": process.late, "rare": process.rare}
    return {
        name: window
        for name, note in notes.items()
        if note is not None and (window := _window(path / NAMES, note.file or "")) is not None
    }


def _window(folder: Path, file: str) -> Trace | str | None:
    """None if it is gone."""
    said = f"{folder.name}/{file} is left out"
    try:
        found = load(_inside(folder, file))
    except UnreadableFile as error:
        gone = not os.path.exists(folder / file)  # noqa: PTH110 - Path raises for long names
        return None if gone else f"{said}: {str(error).rpartition(f'{file}: ')[2]}"
    return found if _is_of_a_program(found) else f"{said}: it holds nothing of what ran"


def _with_facts(window: Trace | str | None, facts: RunFacts) -> Trace | None:
    return replace(window, run=facts) if isinstance(window, Trace) else None


def _is_of_a_program(trace: Trace) -> bool:
    """Whether anything that a program did was recorded; another file may have its name."""
    tables = (trace.host_ops, trace.device_ops, trace.api_calls, trace.allocations, trace.snapshot)
    return any(table is not None for table in tables)


def names_beside(recording: str) -> Trace | None:
    """The window for names beside this file of a run folder's traces; None without, or damaged."""
    path, process = Path(recording), process_of(recording)
    note = None if process is None else process.named
    try:
        named = _inside(path.parent.parent / NAMES, (note and note.file) or path.name)
        return load(named) if path.parent.name == TRACES and named.is_file() else None
    except UnreadableFile:  # the times stand without it
        return None


def with_values(trace: Trace, recording: str) -> Trace:
    """With what the run folder around this file has beside it of the same rank: the window for
    names, where findings of the bare one get their places, looks at its threads over the whole run,
    and work that the run saw in vain."""
    if trace.run is not None or (named := names_beside(recording)) is None:
        return trace
    samples = samples_of(Path(recording))
    if samples is not None:  # what steps that were not recorded took is no part of the job's step
        samples = replace(samples, far=0, excess_ns=0, far_steps=(), far_excess_ns=(), events=())
    installed = () if samples is None else samples.installed
    trace, named = with_installed(trace, installed), with_installed(named, installed)
    facts = RunFacts(values=values_beside(recording), samples=samples)
    return replace(trace, run=replace(facts, named=replace(named, run=facts)))


def with_far_steps(trace: Trace, recording: str) -> Trace:
    """The same with the steps that the rank timed, and those of the whole run that took far longer:
    then gains count from its mean step."""
    samples = samples_of(Path(recording))
    if trace.run is None or samples is None:
        return trace
    timed_ns = timed_steps_ns(recording)
    facts = replace(trace.run, samples=samples, unprofiled_step_ns=timed_ns)
    named = facts.named and _with_facts(facts.named, replace(facts, named=None))
    return replace(trace, run=replace(facts, named=named))


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
    return replace(
        trace,
        names=names.freeze(),
        kernel_counters=table("kernel_counters", columns, counters.missing),
        profiled_launches=profiled.profiled_launches,
        expert_notes=profiled.expert_notes,
    )


def _with_telemetry(
    trace: Trace,
    path: Path,
    process: ProcessDocument,
    recording: RecordingNote,
    environment: EnvironmentDocument,
) -> Trace:
    log = path / TELEMETRY_FILE
    if not log.is_file() or not (samples := collect(log)):
        return trace
    names = Names(trace.names)
    counters, first_ns = samples.counters(before=names)
    origin_ns = trace.origin_ns
    if origin_ns is None:  # the trace names no time of day; the process noted when it began
        origin_ns = recording.start_unix_ns or first_ns
    counters = _on_the_traces_terms(counters, first_ns - origin_ns, process, environment)
    if trace.counters is not None and len(trace.counters):
        counters = _merged(trace.counters, counters)
    return replace(trace, names=names.freeze(), counters=counters)


def _on_the_traces_terms(
    counters: Table, shift_ns: int, process: ProcessDocument, environment: EnvironmentDocument
) -> Table:
    """Shift the clock, and number the device as the process did, by its uuid.

    Without a uuid to go by, numbers stay as the driver has them.
    """
    device, devices = process.device, environment.gpu.devices or ()
    keep = np.ones(len(counters), np.bool_)
    numbers = counters["device"].copy()
    record = device_record(process, environment)
    if device is not None and record is not None and device.uuid == record.uuid is not None:
        ours = counters.known("device") & (numbers == devices.index(record))
        keep = ours | ~counters.known("device")
        numbers = np.where(ours, device.number or 0, numbers)
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


def _with_health(trace: Trace, facts: Sequence[tuple[str, str]]) -> Trace:
    if not facts:
        return trace
    names = Names(trace.names)
    rows = health_table([(fact, 1, sentence) for fact, sentence in facts], names)
    if trace.health is not None and len(trace.health):
        rows = _stacked(trace.health, rows)
    return replace(trace, names=names.freeze(), health=rows)


def _stacked(first: Table, second: Table) -> Table:
    columns = {c: np.concatenate((first[c], second[c])) for c in first.columns}
    unknown = np.concatenate((~first.known("time_ns"), ~second.known("time_ns")))
    return table("health", columns, {"time_ns": unknown})


def _inside(folder: Path, name: str) -> Path:
    """A file of the folder; a name that leads elsewhere is refused."""
    path = folder / name
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
    except (RuntimeError, OSError, ValueError):  # links that lead to themselves, zero bytes
        inside = False
    if not inside:
        raise UnreadableFile(
            f"{folder}: the recording {name!r} lies outside", hint="check run.json"
        )
    return path
