"""From the samples of a run folder to what analyses read. Rows that lead nowhere are left out."""

import math
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from msgspec.structs import asdict

from pinchpoint.errors import UnreadableFile
from pinchpoint.run_folder.documents import ProcessDocument, read
from pinchpoint.run_folder.layout import SAMPLES, TRACES, process_stem
from pinchpoint.run_folder.samples import (
    CallsNote,
    FarStepNote,
    FrameNote,
    PartNote,
    SamplesDocument,
    Seen,
    ThreadNote,
)
from pinchpoint.trace.packages import as_installed
from pinchpoint.trace.run_samples import (
    CacheUse,
    Called,
    FarStep,
    Garbage,
    Given,
    HeardCalls,
    HeardFunction,
    Operand,
    RunPart,
    RunSamples,
    SampledChild,
    SampledThread,
    SampledWorker,
    Spent,
    TensorFiles,
)

_MOST_PROCESSES = 256  # of a program, whose samples are looked through for the main one
_MOST_WORKERS = 256  # of a loader; bounds what a hostile folder costs


def run_samples(folder: Path, process: ProcessDocument) -> RunSamples | None:
    """The samples of this process with those of the processes that work for it; None without any.

    Where no process noted anything but samples, they are those of the one that the command started,
    or that computed most.
    """
    pattern = "rank*.json" if process.pid is None else f"rank*.{process.pid}.json"
    paths = sorted((folder / SAMPLES).glob(pattern))[:_MOST_PROCESSES]
    own = [document for path in paths if (document := _read(path)) is not None]
    if not own:
        return None
    main = max(own, key=lambda one: (one.started, one.usage.user_ns or 0, one.sampled.looks))
    workers = [_worker(one) for one in _all(folder, "worker.*.json")]
    children = [_child(one) for one in _all(folder, "child.*.json")]
    return _of(main, workers, children)


def samples_of(recording: Path) -> RunSamples | None:
    """The samples of the process that wrote this file of a run folder's traces; None without."""
    if recording.parent.name != TRACES:
        return None
    found = _read(recording.parent.parent / SAMPLES / f"{process_stem(recording.name)}.json")
    return None if found is None else _of(found, (), ())


def _all(folder: Path, pattern: str) -> list[SamplesDocument]:
    paths = sorted((folder / SAMPLES).glob(pattern))[:_MOST_WORKERS]
    return [document for path in paths if (document := _read(path)) is not None]


def _read(path: Path) -> SamplesDocument | None:
    try:
        return read(path, SamplesDocument).document
    except UnreadableFile:  # the recordings stand without it
        return None


def _of(
    found: SamplesDocument, workers: Sequence[SampledWorker], children: Sequence[SampledChild]
) -> RunSamples:
    sampled, steps, known = found.sampled, found.steps, len(found.stacks)
    return RunSamples(
        every_s=sampled.every_s,
        seconds=sampled.seconds,
        looks=sampled.looks,
        late_median_ns=sampled.late_median_ns,
        cost_ns=found.cost_ns,
        frames=_frames(found),
        stacks=_stacks(found),
        threads=tuple(_thread(one, found) for one in sampled.threads),
        typical_ns=steps.typical_ns,
        typical_wait_ns=steps.typical_wait_ns,
        count=steps.count,
        total_ns=steps.total_ns,
        far=steps.far,
        excess_ns=steps.excess_ns,
        far_steps=steps.far_steps,
        far_excess_ns=steps.far_excess_ns,
        start=_seen(sampled.start, known),
        usual=_seen(steps.usual, known),
        queued_ns=steps.queued_ns,
        events=tuple(_far(one, known, found.installed) for one in steps.events),
        workers=tuple(workers),
        parts=_parts(steps.parts, known),
        before=None if sampled.before is None else _thread(sampled.before, found),
        after=_seen(found.after, known),
        after_ns=found.after_ns,
        looker_queued_ns=sampled.queued_ns,
        usage=found.usage,
        garbage=Garbage(
            found.garbage.ns,
            found.garbage.collections,
            found.garbage.called_ns,
            _spelt(found.garbage.called_at, found.installed),
        ),
        children=tuple(children),
        caches=tuple(
            CacheUse(c.file, c.line, c.function, c.hits, c.misses, c.most, c.held)
            for c in found.caches
        ),
        tensor_files=tuple(
            TensorFiles(
                f.kind,
                _spelt(f.at, found.installed),
                f.calls,
                f.ns,
                f.told,
                f.held_bytes,
                f.stored_bytes,
                f.thirds,
            )
            for f in found.tensor_files
        ),
        operands=tuple(
            Operand(
                _spelt((o.at,), found.installed)[0],
                o.doing,
                o.name,
                o.shape,
                o.strides_bytes,
                o.item_bytes,
                o.axis,
                math.prod(o.taken),
            )
            for o in found.operands
            if len(o.shape) == len(o.strides_bytes) and o.axis < len(o.shape)
        ),
        called=_called(found),
        heard=None if found.calls is None else _heard(found.calls, found.installed),
        installed=found.installed,
    )


def _heard(note: CallsNote, installed: Collection[str]) -> HeardCalls:
    steps, known = max(note.steps, 1), len(note.functions)
    return HeardCalls(
        note.steps,
        note.by,
        tuple(
            HeardFunction(
                _spelt((f.function,), installed)[0],
                None if f.caller is None else _spelt((f.caller,), installed)[0],
                round(f.calls / steps),
                f.ns / steps,
                f.told,
                f.distinct,
                f.new / f.later if f.later else 1.0,
                f.alike,
                f.answers,
                f.numbers,
                f.varied,
                f.unread,
                tuple(row for row in f.inside if row < known),
                f.tiny_ratio,
                f.tiny_of,
                f.why,
                f.untold,
            )
            for f in note.functions
        ),
        note.why,
        note.step_ns,
    )


def _frames(found: SamplesDocument) -> tuple[str, ...]:
    return _spelt(found.frames, found.installed)


def _spelt(frames: Iterable[FrameNote], installed: Collection[str]) -> tuple[str, ...]:
    return tuple(
        as_installed(f"{file}({line}): {function}", installed) for file, line, function in frames
    )


def _stacks(found: SamplesDocument) -> tuple[tuple[int, ...], ...]:
    known = len(found.frames)
    return tuple(tuple(row for row in stack if row < known) for stack in found.stacks)


def _seen(rows: Iterable[Seen], known: int) -> tuple[Seen, ...]:
    return tuple((row, looks) for row, looks in rows if row < known)


def _thread(note: ThreadNote, found: SamplesDocument) -> SampledThread:
    frames, stacks = _frames(found), _stacks(found)
    looks = dict(note.stacks)
    waits: dict[int, list[tuple[str, int]]] = {}
    for row, word, us in note.waits:
        waits.setdefault(row, []).append((word, us))
    spent = tuple(
        Spent(
            tuple(frames[row] for row in stacks[stack]),
            found.doing[stack] if stack < len(found.doing) else "",
            looks.get(stack, 1),
            us,
            on_core_us,
            held_us,
            tuple(waits.get(stack, ())),
        )
        for stack, us, on_core_us, held_us in note.spent
        if stack < len(stacks)
    )
    seen = _seen(note.stacks, len(stacks))
    return SampledThread(
        note.name,
        note.main,
        note.looks,
        note.cpu_ns,
        seen,
        spent,
        note.unplaced_us,
        note.queued_ns,
        note.native,
    )


def _child(found: SamplesDocument) -> SampledChild:
    main = next((t for t in found.sampled.threads if t.main), ThreadNote())
    return SampledChild(found.pid, found.sampled.seconds, _thread(main, found), found.usage)


def _far(note: FarStepNote, known: int, installed: Collection[str]) -> FarStep:
    return FarStep(
        note.step,
        note.ns,
        note.excess_ns,
        note.wait_ns,
        note.gc_ns,
        note.save_ns,
        note.queued_ns,
        note.throttled_ns,
        note.faults,
        note.looks,
        _seen(note.seen, known),
        _spelt(note.gc_called_at, installed),
    )


def _parts(notes: Iterable[PartNote], known: int) -> tuple[RunPart, ...]:
    """In order of time; parts without a step that counts say nothing."""
    return tuple(
        RunPart(
            note.first,
            note.steps,
            note.p25,
            note.p50,
            note.p75,
            note.cpu_ns,
            note.objects,
            note.resident_bytes,
            note.device_bytes,
            _seen(note.seen, known),
            _seen(note.beside, known),
        )
        for note in sorted(notes, key=lambda note: note.first)
        if note.p25 is not None and note.p50 is not None and note.p75 is not None
    )


def _worker(found: SamplesDocument) -> SampledWorker:
    frames, stacks = _frames(found), _stacks(found)
    main = next((t for t in found.sampled.threads if t.main), ThreadNote())
    seen = _seen(main.stacks, len(stacks))
    spelt = tuple((tuple(frames[row] for row in stacks[stack]), looks) for stack, looks in seen)
    return SampledWorker(found.worker, main.looks, spelt, _called(found))


def _called(found: SamplesDocument) -> tuple[Called, ...]:
    return tuple(
        Called(
            _spelt((c.at,), found.installed)[0],
            c.doing,
            c.called,
            c.looks,
            c.compared,
            tuple(Given(**asdict(g)) for g in c.given),
        )
        for c in found.called
    )
