"""How the steps get their batches from a loader: what rules about input say alike."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.ancestry import InputWork, input_work, parents, within
from pinchpoint.analysis.host.frames import Owner, owner_of
from pinchpoint.analysis.host.input_arguments import Shape
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.mean.mean_step import (
    ExceptionalCause,
    MeanStep,
    mean_step,
    mean_without_profiler_ns,
)
from pinchpoint.analysis.mean.rare_steps import rare_causes
from pinchpoint.analysis.replay import Change, ScaleHostSpans
from pinchpoint.analysis.replay.graph import LEAST_WAITING_RATIO
from pinchpoint.analysis.replay.predict import comes_in_bursts, corrected_step_ns
from pinchpoint.analysis.run import data_wait_ns, run_facts, workers_busy_ratio
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, judged_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.steps.steps import steps as find_steps
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.analysis.time.loader_waits import waited_in
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.diagnosis.evidence.host_spans import HostSpans, host_spans, named, outermost
from pinchpoint.diagnosis.evidence.taken_apart import taken_apart
from pinchpoint.diagnosis.finding import Location
from pinchpoint.diagnosis.record import Need, Record
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, MemoryKind, RunFacts, Trace, once_per_trace
from pinchpoint.trace.arrays import distinct

LOADER = "enumerate(Data"  # torch names the range enumerate(DataLoader)#…__next__
LEAST_WAIT_NS = 1_000_000  # taking a batch that is ready costs up to 0.6 ms, recorded
LEAST_STEPS_RATIO = 1 / 3  # a wait in fewer steps is an incident (a new epoch, a busy disk)
FEWEST_ROUNDS = 2  # a single wait may be an incident
READY_BATCH_RATIO = 0.02  # taking a batch that is ready costs about 0.1 ms of a wait of 5 ms
MOST_OF_IT_RATIO = 0.5  # work that takes this share of the loading is what to look at first

ASK_THE_WORKERS = Record(
    "one profile with num_workers=0 and with_stack=True; or a worker: py-spy record --pid WORKER",
    Need.WITH_STACK,
)
MOST_WORKERS = 16  # of one process: more mostly wait for each other's reads
_FEEDER = "multiprocessing/queues.py("  # one such thread sends indices to each worker


@dataclass(frozen=True, eq=False)
class Loads:
    """The loader's next() in the judged steps."""

    spans: HostSpans
    in_workers: bool  # else the thread of the steps prepares the batches itself
    workers: int | None  # None where the recording does not say
    waited_ns: NDArray[np.int64]  # in each span: for the workers; or preparing, without them
    waits_ns_per_step: int  # the same, a step
    starving: bool  # steps wait for batches again and again
    sample: Shape | None  # of the largest tensor that goes to the device
    samples: int | None  # in a batch
    sample_bytes: int | None

    @property
    def ready(self) -> tuple[Change, ...]:
        """What a step is when each batch is there in time."""
        return (ScaleHostSpans(self.spans.rows, READY_BATCH_RATIO),)

    @property
    def ns_per_sample(self) -> float | None:
        """Time of who prepares a sample: all workers share in the wait for a batch."""
        preparing = self.workers if self.in_workers else 1
        if not preparing or not self.samples:
            return None
        return self.waits_ns_per_step * preparing / self.samples

    def visible(self) -> "Loads":
        """Itself, if what is done for a batch can be seen; raises NotChecked if workers do it."""
        if self.in_workers:
            why = "worker processes prepare the batches, and what they do is not in the recording"
            raise NotChecked(why, ASK_THE_WORKERS)
        return self


def workers_that_fit(run: RunFacts) -> int | None:
    """A worker for each core of a process beside the one of its training thread."""
    if run.cores_allowed is None:
        return None
    cores = int(run.cores_allowed / max(run.processes or 1, 1))
    return min(max(cores - 1, 1), MOST_WORKERS)


def workers_without_room(trace: Trace, found: Loads) -> int | None:
    """How many workers it has, if the cores of the program have no room for more; else None."""
    run = run_facts(trace)
    fit = workers_that_fit(run)
    most = max((one.workers or 0 for one in run.loader_workers), default=0)
    full = found.in_workers and fit is not None and fit < MOST_WORKERS and most >= fit
    return most if full else None


# Of the waits: what workers do for a batch can at most take as long as the batch is waited for.
MADE_AT_MOST_RATIO = 0.1
RESTING_RATIO = 0.5  # of their time: workers that are busier may be what batches wait for


def made_ratio_if_sent(trace: Trace, found: Loads) -> float | None:
    """Share of their time in which workers make batches, where that explains hardly any waiting.

    Then batches are waited for while they go from process to process: each tensor is a message, a
    file of shared memory and a mapping of its own. Or looks find the thread that takes them in at
    that, and workers rest. None where making them may be what takes so long, or where it is not
    known how long workers were at it.
    """
    made = workers_busy_ratio(trace) if found.in_workers else 0.0
    stage = taken_apart(trace) if 0 < made < RESTING_RATIO else None
    if stage is not None and stage.bounds:
        return made
    step_ns = mean_without_profiler_ns(trace) or find_steps(trace).typical_ns
    waits_ns = data_wait_ns(trace) or found.waits_ns_per_step
    if not made or step_ns is None:
        return None
    return made if made * step_ns <= MADE_AT_MOST_RATIO * waits_ns else None


def won_if_sent_at_once_ns(trace: Trace, made_ratio: float) -> int | None:
    """Of the mean step without the profiler, what is won at most by batches that wait for nothing.

    As the run timed it in a program without a device: the wait of a usual step, and where the mean
    step is another one, what waits add to it. Batches still come no faster than workers make them.
    None where the run did not time its waits.
    """
    waits, usual_ns = run_facts(trace).data_wait_ns, corrected_step_ns(trace)
    if not computes_on_cpu(trace) or not waits or usual_ns is None:
        return None
    mean_ns, waits_ns = mean_without_profiler_ns(trace), round(float(np.median(waits)))
    if mean_ns is not None and mean_ns > usual_ns:
        far = (one for one in rare_causes(trace) if one.recurs and one.kind is GapKind.DATA)
        waits_ns += min(sum(one.ns_per_step for one in far), mean_ns - usual_ns)
    step_ns = mean_ns or usual_ns
    waits_ns = min(waits_ns, step_ns)
    left_ns = max(made_ratio * step_ns - (step_ns - waits_ns), READY_BATCH_RATIO * waits_ns)
    return max(round(waits_ns - left_ns), 0)


def collated_in(trace: Trace) -> Location | None:
    """The program's function that makes a batch of samples; None where it is the loader's own."""
    workers = run_facts(trace).loader_workers
    at = next((one.collate for one in workers if one.collate is not None), None)
    if at is None or owner_of(at[0]) is not Owner.USER:
        return None
    return Location(*at)


def with_workers(trace: Trace, found: Loads) -> tuple[Change, ...]:
    """What a step is when workers prepare its batches, as many as its cores have room for.

    A batch then comes every (preparation / workers), and the rest of the step goes on meanwhile:
    the longer of the two. Where the cores are not known, or it has workers, batches are ready.
    """
    workers, step_ns = workers_that_fit(run_facts(trace)), find_steps(trace).typical_ns
    preparing_ns = found.waits_ns_per_step
    if found.in_workers or workers is None or not step_ns or not preparing_ns:
        return found.ready
    waits_ns = preparing_ns / workers - max(step_ns - preparing_ns, 0)
    left = min(max(waits_ns / preparing_ns, READY_BATCH_RATIO), 1.0)
    return (ScaleHostSpans(found.spans.rows, left),)


@once_per_trace
def loads(trace: Trace) -> Loads | None:
    """The loader's use in the judged steps; None where there is none."""
    host = trace.host_ops
    if host is None:
        return None
    ranges = named(trace, lambda name: LOADER in name)
    ranges &= host["kind"] == HostKind.ANNOTATION
    spans = host_spans(trace, ranges, "time in the loader's next()")
    if spans is None:
        return None
    in_workers = "MultiProcessing" in (spans.longest or "")
    waited = _waited(trace, spans.rows, in_workers=in_workers)
    waits_ns_per_step = round(per_step(trace, int(waited.sum())))
    waiting = waited >= LEAST_WAIT_NS
    steps = judged_steps(trace)
    starving = distinct(steps.step_of(host["start_ns"][spans.rows[waiting]]))
    shape, size = _batch(trace)
    workers, typical_step_ns = _workers(trace), find_steps(trace).typical_ns
    return Loads(
        spans,
        in_workers=in_workers,
        workers=workers,
        waited_ns=waited,
        waits_ns_per_step=waits_ns_per_step,
        starving=waits_ns_per_step >= LEAST_WAITING_RATIO * (typical_step_ns or 0)
        and _again_and_again(starving, len(steps), workers, in_bursts=comes_in_bursts(trace)),
        sample=shape[1:] if shape else None,
        samples=shape[0] if shape else None,
        sample_bytes=size // shape[0] if shape and shape[0] else None,
    )


def _waited(trace: Trace, rows: NDArray[np.intp], *, in_workers: bool) -> NDArray[np.int64]:
    """Time that each of these rows of ``host_ops`` waits for its batch or prepares it."""
    host = trace.host_ops
    assert host is not None
    if not in_workers:
        return host["duration_ns"][rows].astype(np.int64)
    return waited_in(trace, host["start_ns"][rows], host.end_ns[rows])


def _again_and_again(
    which: NDArray[np.int64], steps: int, workers: int | None, *, in_bursts: bool
) -> bool:
    """Whether so many of the steps wait that it is no incident.

    Workers that started together finish together: then one step waits for a whole round of batches,
    and the next ones, as many as there are workers, find theirs ready. Fewer steps than two rounds
    show that only if the waits are whole rounds apart, or if the steps of the whole run are known
    to come in bursts.
    """
    waiting = len(which)
    if waiting >= LEAST_STEPS_RATIO * steps:
        return True
    if workers is None or waiting < FEWEST_ROUNDS or waiting * workers < steps:
        return False
    in_rounds = workers > 1 and bool((np.diff(which) % workers == 0).all())
    return in_bursts or in_rounds or steps >= FEWEST_ROUNDS * workers


def most_won_ns(trace: Trace, wait_ns: int) -> int:
    """What a step can win at most if a wait for its batch, measured in the run, is gone.

    The device's work stays: a part of the wait during which it worked was no loss.
    """
    parts, step_ns = breakdown(trace), corrected_step_ns(trace)
    if step_ns is None:
        return wait_ns
    work_ns = parts.of_group("device") + parts.of_group("exposed")
    return min(wait_ns, max(step_ns - work_ns, 0))


def work_in_loader(trace: Trace, found: Loads, kind: InputWork) -> HostSpans | None:
    """Work of a kind that the thread of the steps does in the loader, if it is most of it."""
    host = trace.host_ops
    assert host is not None
    loading = np.zeros(len(host), np.bool_)
    loading[found.spans.rows] = True
    inside = within(parents(host), loading)[:-1]
    spans = host_spans(trace, (input_work(trace) == kind) & inside, _WHAT[kind])
    if spans is None or spans.ns_per_step < MOST_OF_IT_RATIO * found.spans.ns_per_step:
        return None
    return spans


_WHAT = {
    InputWork.DECODE: "decoding",
    InputWork.FILES: "opening, reading and parsing files",
    InputWork.COLLATE: "collating",
    InputWork.TOKENIZE: "tokenising",
    InputWork.DETOKENIZE: "detokenising",
}


def _workers(trace: Trace) -> int | None:
    """Worker processes, by the threads that feed them; most at one time."""
    host = trace.host_ops
    assert host is not None
    rows = np.flatnonzero(named(trace, lambda n: n.startswith(_FEEDER) and n.endswith(": _feed")))
    if not len(rows):
        return None
    start, end = host["start_ns"][rows], host.end_ns[rows]
    return int(max(((start <= t) & (end > t)).sum() for t in start.tolist()))


def _batch(trace: Trace) -> tuple[Shape | None, int]:
    """Shape of the largest tensor that a step copies to the device, and bytes of its whole batch.

    Tensors with the same first dimension belong to one batch.
    """
    ops, calls = trace.device_ops, launched_calls(trace)
    if ops is None:
        return None, 0
    host_side = (MemoryKind.PINNED, MemoryKind.PAGEABLE, MemoryKind.HOST)
    down = np.isin(ops.filled("from_memory", 0), host_side) & device_ops_in_steps(trace)
    down &= ops.filled("to_memory", 0) == MemoryKind.DEVICE
    size = ops.filled("bytes", 0).astype(np.int64)
    rows = np.flatnonzero(down & calls.where(lambda of: of.call.shape(0) is not None))
    if not len(rows):
        return None, 0
    first: NDArray[np.float64] = calls.numbers(lambda of: (of.call.shape(0) or (0,))[0])[rows]
    largest = int(rows[np.argmax(size[rows])])
    shape = calls.calls[calls.which[largest]].call.shape(0)
    together = size[rows[first == (shape or (0,))[0]]].sum()
    return shape, round(per_step(trace, int(together)))


# ------------------------------------------------------------------------------------------------
# Batches that come late now and then, and what a short recording can tell about a loader.
#
# The workers of a loader have batches ready when a recording begins: as many as their queue
# holds. Only a recording that takes more than those shows whether they keep up.


PREFETCH_FACTOR = 2  # batches ahead for each worker, as torch has it unless told otherwise
ROUNDS_TO_TELL = 2  # of the workers, after the queue that was full is used up
SLOW_BATCH_RATIO = 2.0  # a batch that takes so much longer than others is another kind of batch


@dataclass(frozen=True, eq=False)
class RareWaits:
    """Exceptional steps that wait for their batch."""

    mean: MeanStep
    cause: ExceptionalCause
    rows: NDArray[np.intp]  # of host_ops: the waits
    slower_ratio: float | None  # a late batch against those before it, at least; None: not known


@dataclass(frozen=True)
class LoaderQueue:
    """What the recording takes from the loader's queue."""

    taken: int  # batches in the recording
    depth: int | None  # batches that may have been ready at its beginning; None: not known

    @property
    def tells(self) -> bool:
        """Whether more batches were taken than may have been ready."""
        return self.depth is not None and self.taken > self.depth


def queue_of(trace: Trace, found: Loads) -> LoaderQueue:
    """How many batches the recording takes, and how many may have been ready before it."""
    taken = len(_takes(trace))
    if not found.in_workers:
        return LoaderQueue(taken, 0)
    return LoaderQueue(taken, None if found.workers is None else found.workers * PREFETCH_FACTOR)


def rare_waits(trace: Trace, found: Loads, *, within_queue: bool = False) -> RareWaits | None:
    """The largest cause of exceptional steps that is a wait for batches beyond the queue's own.

    ``within_queue``: for one of those that may have been ready when the recording began, and was
    not. Told are waits that last longer than the steps take to use up a whole queue: no full queue
    would have hidden them. How often they come does not show.
    """
    mean, queue = mean_step(trace), queue_of(trace, found)
    host = trace.host_ops
    if mean is None or host is None or queue.depth is None:
        return None
    cause = next((c for c in mean.causes if c.kind == GapKind.DATA and not c.starting), None)
    takes = _takes(trace)
    waited = _waited(trace, takes, in_workers=found.in_workers)
    late = np.flatnonzero(waited >= LEAST_WAIT_NS)
    if within_queue:
        late = late[(late > 0) & (waited[late] > queue.depth * mean.typical_ns)]
    else:
        late = late[late >= queue.depth]
    if cause is None or not len(late):
        return None
    if within_queue:
        return RareWaits(mean, cause, takes[late], None)
    ratio = _slower(trace, takes, int(late[0]), queue.depth, found.workers or 0)
    return RareWaits(mean, cause, takes[late], ratio if found.in_workers else None)


def _takes(trace: Trace) -> NDArray[np.intp]:
    """Rows of host_ops in which the thread of the steps takes a batch, in order."""
    host = trace.host_ops
    assert host is not None
    ranges = named(trace, lambda name: LOADER in name) & (host["kind"] == HostKind.ANNOTATION)
    return np.flatnonzero(outermost(trace, ranges & (host["thread"] == steps(trace).thread)))


def _slower(
    trace: Trace, takes: NDArray[np.intp], late: int, depth: int, workers: int
) -> float | None:
    """How much longer the late batch took than any that was ready before it, at least.

    Batch *k* is asked for when batch *k - depth* is taken, so one that was ready took no longer
    than from there to its own turn. The late one began once its worker had delivered the batch
    before, *k - workers*, which was there by its turn.
    """
    host = trace.host_ops
    assert host is not None
    begun, done = host["start_ns"][takes], host.end_ns[takes]
    if late <= depth or late < workers or not workers:
        return None
    ready = max(int(begun[k] - begun[k - depth]) for k in range(depth, late))
    took = int(done[late]) - max(int(begun[late - depth]), int(begun[late - workers]))
    return took / ready if ready > 0 else None
