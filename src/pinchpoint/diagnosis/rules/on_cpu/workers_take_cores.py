"""Worker processes of a loader take the cores that the step computes on.

## What it looks for
In a run folder of a program without a device: what the worker processes of its loaders take on
cores for the batches of a step, beside what the process itself takes in a step, on a machine whose
cores were all taken meanwhile. Steps that wait for their batch have `dataloader-starved`; here each
batch is there in time, and its price is that the operators are slower.

## Why it matters
With a device, cores are there for the workers. Without one, the step computes on the same cores: an
operator that is shared out among threads ends with the last of them, and one whose core a worker
has waits for it.

## How to fix it
Make what the workers do cheaper, or do it once before training and keep the result. Fewer workers
do the same work later; more take more cores at once.

## When to ignore it
Where the same program trains on a device in the end.
"""

from collections.abc import Iterator

from pinchpoint.analysis.host.ancestry import InputWork
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.run import data_wait_ns, host_looks, run_facts, workers_at_once
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.loading import loads
from pinchpoint.diagnosis.evidence.read_by_workers import reads_too_much
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import RUN_FOLDER
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import judged
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=RUN_FOLDER)

FULL_RATIO = 0.9  # of all cores' time, taken by anybody: looks of a second see short pauses, too
LEAST_RATIO = 0.06  # of the time on cores of process and workers: half of it is 3 % of a step
# Of the workers' share: cores that they leave go to other programs, too; and operators that no
# longer wait for the last of their threads win more than its time (1.0 to 1.9 of it in one program
# on two cores that others used as well; no other was measured).
SURE_SHARE, BEST_SHARE = 0.5, 2.0


def check(trace: Trace) -> Iterator[Found | Small]:
    """What workers take, as a share of what process and workers take."""
    facts = run_facts(trace)
    step_ns = corrected_step_ns(trace) or steps(trace).typical_ns
    if judged(trace) is None or not workers_at_once(trace) or not step_ns:
        return
    theirs = facts.workers_ns_per_step
    if facts.user_ns_per_step is None or theirs is None:
        raise NotChecked("what steps and workers take on cores is not recorded")
    own = facts.user_ns_per_step + (facts.kernel_ns_per_step or 0)
    looks, load = host_looks(trace), loads(trace)
    taken = looks.median("cpu_ratio") if looks else None
    if taken is None:
        raise NotChecked("how much of the machine's cores was taken is not recorded")
    ratio = theirs / max(own + theirs, 1)
    if taken < FULL_RATIO or (load is not None and load.starving):
        return
    cores = facts.cores_allowed or facts.cores_there or 1
    # Workers only slow what computes: a step that waits for its batch wins none of that wait.
    step_ns = max(step_ns - (data_wait_ns(trace) or 0), 0)
    most_ns = max(step_ns - own / cores, 0)  # with all of the cores to itself
    from pinchpoint.diagnosis.evidence.workers import workers_do

    seen = workers_do(trace)
    if seen is not None and seen.mostly(InputWork.FILES) and reads_too_much(trace):
        return  # reads-more-than-used says what they do
    if ratio < LEAST_RATIO:
        yield Small(ratio, LEAST_RATIO, "the time on cores")
        return
    yield Found(
        summary=(
            f"Worker processes compute for {duration(theirs)} of each step on the cores that the"
            f" step computes on, beside {duration(own)} of its own"
            + (f", mostly in {seen.said}" if seen and seen.said else "")
        ),
        evidence=(
            Evidence("workers, on cores", round(theirs), "ns per step"),
            Evidence("the process itself, on cores", round(own), "ns per step"),
            Evidence("of all cores' time, taken", round(taken, 2), "ratio"),
            *(seen.evidence if seen else ()),
        ),
        cost_ns_per_step=round(ratio * step_ns),
        saving_ns_per_step=(
            round(min(SURE_SHARE * ratio * step_ns, most_ns)),
            round(min(BEST_SHARE * ratio * step_ns, most_ns)),
        ),
        location=seen.location if seen else None,
        fix="Make what the workers do cheaper, or do it once before training and keep the result",
        confirm=ANY_PROGRAM,
        confidence="medium",
    )
