"""Tensors that are views are saved with all of what they are views of.

## What it looks for
`torch.save` writes the storage of each tensor, and `torch.load` reads all of it back. `pinchpoint
run` looks at what is saved and loaded: how many bytes the tensors hold, and how many their
storages, each once. Named are places inside the steps where the storages hold twice as much or
more. Objects that are neither tensors nor lists and dictionaries of them are not looked into, and
nothing is said of what holds them. What a call takes for its bytes is read from those of the run
that wrote more and less; where all are of one size, the gain is between nothing and their share.

## Why it matters
A row of a batch is saved as the batch: a cache of one file for each row is as many times too large
as the batch has rows, is written and read at that size, and what is loaded keeps it in memory.

## How to fix it
`clone()` what is saved: a copy holds its own elements and nothing else.

## When to ignore it
Where all views of one storage go into one file, or the program changes them through each other
after loading: they share one storage there, too.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import parents, within_rows
from pinchpoint.analysis.host.frames import NAMELESS, Owner, PythonFrame, frame_of
from pinchpoint.analysis.replay import Change, ScaleHostSpans
from pinchpoint.diagnosis.evidence.host_spans import host_spans, named
from pinchpoint.diagnosis.evidence.tensor_files import files_of, loading, needs_stacks, saving
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import WATCHED_RUN
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.run_samples import TensorFiles

RULE = Rule(needs=("host_ops",), record=WATCHED_RUN, parent="tensor-files-in-step", periodic=True)
STORED_RATIO = 2.0  # of what the tensors hold: most of the bytes are nobody's
LEAST_BYTES = 1 << 16  # a call, beyond what they hold: to write them takes as long as to open it

# Between calls with many bytes and with few: of less, what they take differs by chance.
DIFFERENT_RATIO = 1.2


@dataclass(frozen=True, eq=False)
class _Wide:
    """One function that saves, or loads, more than its tensors hold; bytes are those of a call."""

    kind: str
    at: PythonFrame
    held_bytes: float
    stored_bytes: float
    bytes_ratio: float | None  # of a call's time, that grows with its bytes; None: not known

    @property
    def place(self) -> Location:
        return Location(self.at.file, self.at.line, self.at.function)

    @property
    def left_ratio(self) -> float:
        """Of a call's time, without the bytes that its tensors do not hold: what does not grow
        with bytes stays. All of it where that is not known."""
        return 1.0 - (self.bytes_ratio or 0.0) * (1.0 - self.least_ratio)

    @property
    def least_ratio(self) -> float:
        """Were all of its time that of its bytes."""
        return self.held_bytes / self.stored_bytes

    def rows(self, trace: Trace) -> Rows:
        """Its calls inside the judged steps."""
        host = trace.host_ops
        assert host is not None
        function = named(trace, self._is_mine)
        calls = saving(trace) if self.kind == "save" else loading(trace)
        inside = within_rows(parents(host), np.flatnonzero(function))[: len(host)]
        spans = host_spans(trace, calls & inside, "")
        return np.zeros(0, np.intp) if spans is None else spans.rows

    def _is_mine(self, name: str) -> bool:
        frame = frame_of(name)
        return (
            frame is not None and frame.file == self.at.file and frame.function == self.at.function
        )


def check(trace: Trace) -> Iterator[Found]:
    """All such places together: what is written so is read so."""
    host = trace.host_ops
    if host is None:
        return
    needs_stacks(trace)
    spans = host_spans(trace, saving(trace) | loading(trace), "writing and reading")
    if spans is None:
        return
    if not files_of(trace, "save") and not files_of(trace, "load"):
        raise NotChecked("what the tensors in these files hold is seen while a program runs")
    wide = [(one, rows) for one in _wide(trace) if len(rows := one.rows(trace))]
    if not wide:
        return
    first = next((one for one, _ in wide if one.kind == "save"), wide[0][0])
    rows = np.unique(np.concatenate([some for _, some in wide]))
    chosen = np.zeros(len(host), np.bool_)
    chosen[rows] = True
    mine = host_spans(trace, chosen, "writing and reading files of tensors")
    assert mine is not None
    changes: tuple[Change, ...] = tuple(ScaleHostSpans(r, one.left_ratio) for one, r in wide)
    unknown = any(one.bytes_ratio is None for one, _ in wide)
    at_best = tuple(ScaleHostSpans(rows, one.least_ratio) for one, rows in wide)
    yield Found(
        summary=(
            f"{_told(first)} in {first.place}{_also(first, [one for one, _ in wide])};"
            f" all such files take {duration(mine.ns_per_step)} of the mean recorded step"
        ),
        evidence=(
            Evidence("bytes of the tensors", round(first.held_bytes), "bytes per call"),
            Evidence("bytes of their storages", round(first.stored_bytes), "bytes per call"),
            *mine.evidence,
        ),
        cost_ns_per_step=mine.ns_per_step,
        changes=changes,
        at_best=at_best if unknown else (),
        location=first.place,
        fix="Save copies: what is saved is a view, and is written with all of its storage",
        hint="torch.save({name: value.clone() for name, value in entry.items()}, path)",
    )


def _told(one: _Wide) -> str:
    what = "writes" if one.kind == "save" else "reads"
    return (
        f"torch.{one.kind} {what} {one.stored_bytes / one.held_bytes:.3g} times what its tensors"
        f" hold, {one.stored_bytes / 1e6:.3g} MB for {one.held_bytes / 1e6:.3g} MB,"
    )


def _also(first: _Wide, wide: list[_Wide]) -> str:
    read = next((one for one in wide if one.kind == "load" and one is not first), None)
    return "" if read is None else f", and torch.load reads as much in {read.place}"


def _wide(trace: Trace) -> Iterator[_Wide]:
    """By function of the program, most time first."""
    for kind in ("save", "load"):
        by_function: dict[tuple[str, str], list[tuple[PythonFrame, TensorFiles]]] = {}
        for one in files_of(trace, kind):
            at = next((f for name in one.at if (f := _of_program(name))), None)
            if at is not None and one.told:
                by_function.setdefault((at.file, at.function), []).append((at, one))
        for found in by_function.values():
            notes = [note for _, note in found]
            told = sum(n.told for n in notes)
            held, stored = sum(n.held_bytes for n in notes), sum(n.stored_bytes for n in notes)
            beyond = stored - held >= LEAST_BYTES * told
            if held and beyond and stored >= STORED_RATIO * held:
                ratio = _bytes_ratio(notes[0], stored / told)
                yield _Wide(kind, found[0][0], held / told, stored / told, ratio)


def _bytes_ratio(note: TensorFiles, size: float) -> float | None:
    """What of the time of a call of so many bytes is that of its bytes: calls of more bytes take
    longer by it. None where all are of about one size."""
    if len(note.thirds) < 2:
        return None
    (less, short_ns), (more, long_ns) = note.thirds
    if more < DIFFERENT_RATIO * less or more == less:
        return None
    ns_per_byte = max(long_ns - short_ns, 0) / (more - less)
    took_ns = short_ns + ns_per_byte * (size - less)
    return min(ns_per_byte * size / took_ns, 1.0) if took_ns > 0 else None


def _of_program(name: str) -> PythonFrame | None:
    frame = frame_of(name)
    if frame is None or frame.owner is not Owner.USER or frame.function in NAMELESS:
        return None
    return frame
