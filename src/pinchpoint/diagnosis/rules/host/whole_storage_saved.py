"""Tensors that are views are saved with all of what they are views of.

## What it looks for
`torch.save` writes the storage of each tensor, and `torch.load` reads all of it back. `pinchpoint
run` looks at what is saved and loaded: how many bytes the tensors hold, and how many their
storages, each once. Named are places inside the steps where the storages hold twice as much or
more. Objects that are neither tensors nor lists and dictionaries of them are not looked into, and
nothing is said of what holds them.

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
from pinchpoint.analysis.host.frames import Owner, PythonFrame, frame_of
from pinchpoint.analysis.replay import Change, ScaleHostSpans
from pinchpoint.diagnosis.evidence.host_spans import host_spans, named
from pinchpoint.diagnosis.evidence.tensor_files import files_of, loading, saving
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import WATCHED_RUN
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=WATCHED_RUN, parent="tensor-files-in-step", periodic=True)
STORED_RATIO = 2.0  # of what the tensors hold: most of the bytes are nobody's
LEAST_BYTES = 1 << 16  # a call, beyond what they hold: to write them takes as long as to open it


@dataclass(frozen=True, eq=False)
class _Wide:
    """One function that saves, or loads, more than its tensors hold; bytes are those of a call."""

    kind: str
    at: PythonFrame
    held_bytes: float
    stored_bytes: float

    @property
    def place(self) -> Location:
        return Location(self.at.file, self.at.line, self.at.function)

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
    changes: tuple[Change, ...] = tuple(
        ScaleHostSpans(some, one.held_bytes / one.stored_bytes) for one, some in wide
    )
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
        by_function: dict[tuple[str, str], list[float]] = {}
        frames: dict[tuple[str, str], PythonFrame] = {}
        for one in files_of(trace, kind):
            at = next((f for name in one.at if (f := _of_program(name))), None)
            if at is None or not one.told:
                continue
            sums = by_function.setdefault((at.file, at.function), [0, 0, 0])
            frames.setdefault((at.file, at.function), at)
            sums[0] += one.told
            sums[1] += one.held_bytes
            sums[2] += one.stored_bytes
        for key, (told, held, stored) in by_function.items():
            beyond = stored - held >= LEAST_BYTES * told
            if held and beyond and stored >= STORED_RATIO * held:
                yield _Wide(kind, frames[key], held / told, stored / told)


def _of_program(name: str) -> PythonFrame | None:
    frame = frame_of(name)
    return frame if frame is not None and frame.owner is Owner.USER else None
