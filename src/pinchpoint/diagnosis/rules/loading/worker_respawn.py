"""The loader starts its worker processes anew, epoch after epoch.

## What it looks for
Worker processes that a loader starts inside the steps (`multiprocessing` start and fork under
`DataLoader.__iter__`), and the wait for the first batch that follows. Twice at least: the start of
the first epoch is none. Without Python stacks no start of a process shows. In the folder of a run
that has ended, the time that it took to make the loaders' iterators is known exactly, and told from
a third of the run on, even if it came once: where processes are spawned, each imports everything
anew and is sent the dataset, one after the other.

## Why it matters
Forking or spawning workers, importing in them, and filling the first batches takes from tens of
milliseconds to many seconds, while the device has nothing to do. With short epochs it is most of
the time.

## How to fix it
`persistent_workers=True`, or longer epochs. Where one start takes long: fewer workers, the start
method `fork` (before the device is used) or `forkserver`, a dataset that is small to send.

## When to ignore it
Once per long epoch.
"""

from collections.abc import Iterator

from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.diagnosis.evidence.host_spans import host_spans, named
from pinchpoint.diagnosis.evidence.whole_run import LEAST_RUN_RATIO, starts_workers
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import STACKS_OVER_AN_EPOCH
from pinchpoint.diagnosis.rule import NO_KNOB, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=STACKS_OVER_AN_EPOCH,
    parent="dataloader-starved",
    periodic=True,
    knobs=("persistent_workers",),
    advice=NO_KNOB,
    confirm="pinchpoint try --knob persistent_workers -- python train.py",
)

_START = ("<built-in function fork>", "<built-in function fork_exec>", "<built-in function spawnv")
_LOADER = (": __iter__", ": _shutdown_workers", ": __del__", ": _get_iterator")
_WAIT = "enumerate(Data"


def check(trace: Trace) -> Iterator[Found | Small]:
    """Process starts of loaders: most of the run, or inside the steps."""
    whole = tuple(_of_the_run(trace))
    yield from whole
    if any(isinstance(one, Found) for one in whole):
        return
    host = trace.host_ops
    if host is None:
        return
    starts = host_spans(
        trace, named(trace, lambda name: name.startswith(_START)), "starting worker processes"
    )
    if starts is None or starts.count * max(len(judged_steps(trace)), 1) < 2:
        return
    around = named(trace, lambda n: "utils/data/dataloader.py(" in n and n.endswith(_LOADER))
    waits = named(trace, lambda name: _WAIT in name and "MultiProcessing" in name)
    spans = host_spans(trace, around | waits, "starting, stopping and first waiting for workers")
    if spans is None:
        return
    yield Found(
        summary=(
            f"The loader starts {starts.count:.3g} worker processes a step{spans.where},"
            f" {duration(spans.ns_per_step)} of each recorded step with the first wait"
        ),
        evidence=(*starts.evidence[1:], *spans.evidence[:1]),
        cost_ns_per_step=spans.ns_per_step,
        changes=(ScaleHostSpans(spans.rows, 0.02),),
        location=spans.place,
        fix="Keep the workers from epoch to epoch",
        hint="DataLoader(..., persistent_workers=True)",
    )


def _of_the_run(trace: Trace) -> Iterator[Found | Small]:
    """Starts that take a third of the run or more, however often they come."""
    course = trace.run.course if trace.run else None
    if course is None:
        return
    if course.loader_start_ns < LEAST_RUN_RATIO * course.total_ns:
        if course.loader_starts > 1:  # one start is what every loader needs
            yield Small(course.loader_start_ns / course.total_ns, LEAST_RUN_RATIO, "the run")
        return
    seen = starts_workers(trace)
    place = None if seen is None else seen.location
    starts, workers = course.loader_starts, course.loader_workers
    took, total = duration(course.loader_start_ns), duration(course.total_ns)
    yield Found(
        summary=(
            f"Starting the worker processes of loaders takes {took} of a run of {total}:"
            f" {starts} start{'s' if starts > 1 else ''} of up to {workers} workers"
            + (f", in {place}" if place else "")
        ),
        evidence=(
            Evidence("starting workers", course.loader_start_ns, "ns of the run"),
            Evidence("the run", course.total_ns, "ns"),
            Evidence("iterators made", starts, "in the run"),
            Evidence("worker processes", workers, ""),
        ),
        location=place,
        fix=(
            "Make the loader once and keep its workers"
            if starts > 1
            else "Start fewer workers, or fork them: spawned ones import everything anew in turn"
        ),
        hint="DataLoader(..., persistent_workers=True)" if starts > 1 else None,
        consequence=f"{took} of the {total} of the run",
        run_ratio=course.loader_start_ns / course.total_ns,
    )
