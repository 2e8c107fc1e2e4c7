"""What worker processes of a loader do for their batches, by the samples of the whole run."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pinchpoint.analysis.host.ancestry import InputWork, input_work_of_name
from pinchpoint.analysis.mean.rare_steps import RarePlace, called, own_frame
from pinchpoint.diagnosis.evidence.loading import MOST_OF_IT_RATIO, Loads
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.durations import duration

LOADER_FILES = "torch/utils/data/"
FEWEST_LOOKS = 10  # at all workers together: half a second of their work names the busiest place


@dataclass(frozen=True)
class WorkersDo:
    """Where workers were seen while they made batches."""

    looks: int
    place: RarePlace  # the program's function of most looks, and its line
    place_looks: int  # at that function
    work: Counter[InputWork]  # looks at each kind of work that names itself

    def mostly(self, kind: InputWork) -> bool:
        """Whether most of their time is work of this kind."""
        return self.work[kind] >= MOST_OF_IT_RATIO * self.looks

    @property
    def said(self) -> str:
        """``augment (data.py:40), in PIL.Image.resize``."""
        place = str(self.location) if self.location else ""
        return ", in ".join(part for part in (place, self.place.inside) if part)

    @property
    def location(self) -> Location | None:
        """The line of the program."""
        at = self.place.at
        return None if at is None else Location(file=at.file, line=at.line, function=at.function)

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """How often they were seen there."""
        return (
            Evidence("looks at workers at work", self.looks, ""),
            Evidence(f"of them in {self.said}", self.place_looks, ""),
        )


@once_per_trace
def workers_do(trace: Trace) -> WorkersDo | None:
    """None where no samples were taken of workers, or too few."""
    samples = trace.run.samples if trace.run else None
    return None if samples is None else _done([s for w in samples.workers for s in w.stacks])


@once_per_trace
def loader_does(trace: Trace) -> WorkersDo | None:
    """The same of the main thread, where it makes the batches itself."""
    samples = trace.run.samples if trace.run else None
    main = next((t for t in samples.threads if t.main), None) if samples else None
    if samples is None or main is None:
        return None
    spelt = [(samples.spelt(stack), looks) for stack, looks in main.stacks]
    inside = [(_inside(frames), looks) for frames, looks in spelt if _inside(frames)]
    return _done(inside)


def _inside(frames: tuple[str, ...]) -> tuple[str, ...]:
    """The part of a stack, innermost first, that a loader has called; empty if none has."""
    at = [row for row, name in enumerate(frames) if name.startswith(LOADER_FILES)]
    return frames[: at[0]] if at else ()


def _done(stacks: list[tuple[tuple[str, ...], int]]) -> WorkersDo | None:
    looks = sum(count for _, count in stacks)
    if looks < FEWEST_LOOKS:
        return None
    functions: Counter[tuple[str, str]] = Counter()
    work: Counter[InputWork] = Counter()
    for frames, count in stacks:
        if (own := own_frame(frames)) is not None:
            functions[own.file, own.function] += count
        if (kind := next((k for f in frames if (k := input_work_of_name(f))), None)) is not None:
            work[kind] += count
    if not functions:
        return WorkersDo(looks, RarePlace(None, None), 0, work)
    (file, function), most = functions.most_common(1)[0]
    lines: Counter[RarePlace] = Counter()
    for frames, count in stacks:
        own = own_frame(frames)
        if own is not None and (own.file, own.function) == (file, function):
            lines[RarePlace(own, called(frames))] += count
    return WorkersDo(looks, lines.most_common(1)[0][0], most, work)


def found_in_workers(
    found: Loads, seen: WorkersDo, kind: InputWork, what: str, fix: str, hint: str | None
) -> Iterator[Found]:
    """The finding that workers mostly do work of this kind; nothing where they do not."""
    if not seen.mostly(kind):
        return
    share = seen.work[kind] / seen.looks
    yield Found(
        summary=(
            f"Worker processes spend {100 * share:.0f} % of their time {what}, in {seen.said};"
            f" each step waits {duration(found.waits_ns_per_step)} for its batch"
        ),
        evidence=(*seen.evidence, *found.spans.evidence[:1]),
        cost_ns_per_step=found.waits_ns_per_step,
        changes=found.ready,
        location=seen.location,
        fix=fix,
        hint=hint,
    )
