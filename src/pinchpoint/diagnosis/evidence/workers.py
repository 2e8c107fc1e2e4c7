"""What worker processes of a loader do for their batches, by the samples of the whole run."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import pairwise
from statistics import median

from pinchpoint.analysis.host.ancestry import InputWork, input_work_of_name
from pinchpoint.analysis.host.frames import Owner, PythonFrame, frame_of, is_recorder
from pinchpoint.analysis.mean.rare_steps import RarePlace
from pinchpoint.analysis.mean.stacks import called, own_frame
from pinchpoint.diagnosis.evidence.loading import MOST_OF_IT_RATIO, Loads
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.durations import duration

LOADER_FILES = "torch/utils/data/"
# The loop of a worker: what stands outside of it is the program at the moment of its fork.
_WORKER_LOOP = regex(r"torch/utils/data/_utils/worker\.py\(\d+\): _worker_loop$")
# The loader's own code that takes samples one after the other, and stacks them.
_ONE_BY_ONE = regex(r"torch/utils/data/_utils/(fetch|collate)\.py\(\d+\): |torch/storage\.py")
# Where Python's own library decompresses what it reads: in the frame itself. An archive that is not
# compressed is copied and summed up in others below it.
_INFLATES = regex(
    r"(zipfile(/__init__)?\.py\(\d+\): (_read1|_init_decrypter)$)"
    r"|((gzip|bz2|lzma|_compression|compression/.*)\.py\(\d+\): \w*read\w*$)"
)
_OF_AN_ARCHIVE = regex(r"(zipfile(/__init__)?|tarfile)\.py\(\d+\): ")
# A function of the program that the loader's fetch calls itself and that is asked for no index: the
# iterator of a dataset, or a generator that this gave. Collating has a frame of its own there, too.
_FETCH = regex(r"torch/utils/data/_utils/fetch\.py\(\d+\): fetch$")
_BY_INDEX = regex(r".*\(\d+\): __getitems?__$")
ALL_RATIO = 0.1  # a batch is one more or less than a worker's share of what it was given
FEWEST_LOOKS = 10  # at all workers together: half a second of their work names the busiest place


@dataclass(frozen=True)
class WorkersDo:
    """Where workers were seen while they made batches."""

    looks: int
    place: RarePlace  # the program's function of most looks, and its line
    place_looks: int  # at that function
    work: Counter[InputWork]  # looks at each kind of work that names itself
    inflating: int = 0  # looks at what decompresses files
    in_archives: int = 0  # looks at what reads members of archives, compressed or not
    one_by_one: int = 0  # looks at the loader's own code, between calls of the program's
    streaming: int = 0  # looks inside of the iterator of a dataset, which each worker runs
    # Calls of that function for each sample of a batch, as counted in such an iterator; None: not.
    calls_each: float | None = None

    @property
    def rows(self) -> bool:
        """Whether most of their time goes into taking samples one by one and stacking them."""
        return self.one_by_one >= MOST_OF_IT_RATIO * self.looks

    @property
    def streams(self) -> bool:
        """Whether each worker runs the whole dataset, and gives on what it takes as its share."""
        return self.streaming >= MOST_OF_IT_RATIO * self.looks

    def done_by_all(self, workers: int) -> bool | None:
        """Whether each of so many workers does this for all samples, and gives on its share: it
        runs as many times for each of these. None where calls or workers (0) are not known."""
        if not self.streams or workers == 1:
            return False
        if self.calls_each is None or not workers:
            return None
        return abs(self.calls_each - workers) <= ALL_RATIO * workers

    def mostly(self, kind: InputWork) -> bool:
        """Whether most of their time is work of this kind."""
        return self.work[kind] >= MOST_OF_IT_RATIO * self.looks

    @property
    def said(self) -> str:
        """``augment (data.py:40), in PIL.Image.resize``."""
        if self.rows:
            percent = 100 * self.one_by_one / self.looks
            at = f", in {self.location}," if self.location else ""
            return f"taking samples one by one{at} and stacking them ({percent:.0f} %)"
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
    if samples is None:
        return None
    collate = {one.collate for one in trace.run.loader_workers} if trace.run else set()
    stacks = [(_since_the_fork(s), n) for w in samples.workers for s, n in w.stacks]
    found = _done(stacks, {(at[0], at[2]) for at in collate if at is not None})
    at = None if found is None else found.place.at
    return found and replace(found, calls_each=None if at is None else _calls_each(trace, at))


def _calls_each(trace: Trace, at: PythonFrame) -> float | None:
    """Calls of a function for each sample of a batch, in the middle of the workers that counted; 0
    of one that runs more seldom than once for each."""
    told = []
    for worker in trace.run.loader_workers if trace.run else ():
        if not worker.counted_samples:
            continue
        mine = [
            (line, calls)
            for file, line, function, calls in worker.calls
            if (file, function) == (at.file, at.function) and line <= at.line
        ]
        told.append(max(mine, default=(0, 0))[1] / worker.counted_samples)
    return median(told) if told else None


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


def _since_the_fork(frames: tuple[str, ...]) -> tuple[str, ...]:
    """The part of a worker's stack, innermost first, that is its own."""
    at = next((row for row, name in enumerate(frames) if _WORKER_LOOP.match(name)), len(frames))
    return frames[:at]


def _inside(frames: tuple[str, ...]) -> tuple[str, ...]:
    """The part of a stack, innermost first, that a loader has called; empty if none has."""
    at = [row for row, name in enumerate(frames) if name.startswith(LOADER_FILES)]
    return frames[: at[0]] if at else ()


def _done(
    stacks: list[tuple[tuple[str, ...], int]], collate: Collection[tuple[str, str]] = ()
) -> WorkersDo | None:
    looks = sum(count for _, count in stacks)
    if looks < FEWEST_LOOKS:
        return None
    functions: Counter[tuple[str, str]] = Counter()
    work: Counter[InputWork] = Counter()
    one_by_one = inflating = in_archives = streaming = 0
    stacks = [(tuple(f for f in frames if not is_recorder(f)), count) for frames, count in stacks]
    for frames, count in stacks:
        one_by_one += count * bool(frames and _ONE_BY_ONE.match(frames[0]))
        inflating += count * bool(frames and _INFLATES.match(frames[0]))
        in_archives += count * any(map(_OF_AN_ARCHIVE.match, frames))
        streaming += count * _in_a_stream(frames, collate)
        if (own := own_frame(frames)) is not None:
            functions[own.file, own.function] += count
        if (kind := next((k for f in frames if (k := input_work_of_name(f))), None)) is not None:
            work[kind] += count
    if not functions:
        nowhere = RarePlace(None, None)
        return WorkersDo(looks, nowhere, 0, work, inflating, in_archives, one_by_one, streaming)
    (file, function), most = functions.most_common(1)[0]
    lines: Counter[RarePlace] = Counter()
    for frames, count in stacks:
        own = own_frame(frames)
        if own is not None and (own.file, own.function) == (file, function):
            lines[RarePlace(own, called(frames))] += count
    place = lines.most_common(1)[0][0]
    return WorkersDo(looks, place, most, work, inflating, in_archives, one_by_one, streaming)


def _in_a_stream(frames: tuple[str, ...], collate: Collection[tuple[str, str]]) -> bool:
    if any(map(_BY_INDEX.match, frames)):
        return False
    called = (frame_of(a) for a, b in pairwise(frames) if _FETCH.match(b))
    return any(f is not None and (f.file, f.function) not in collate and _is_own(f) for f in called)


def _is_own(frame: PythonFrame) -> bool:
    return frame.owner is not Owner.FRAMEWORK


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
