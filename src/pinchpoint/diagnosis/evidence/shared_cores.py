"""What a step wins where worker processes of its loader compute less.

With a device it is their waits. Without one, a step computes on the cores that workers compute on,
too: where all cores are taken, step and workers together take as long as they compute, by as many
cores as they got. What remains is the longest of three: the step's own work on cores of its own,
all that is left on the cores that there are for both, and the workers' pace.
"""

from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.mean.mean_step import mean_without_profiler_ns
from pinchpoint.analysis.mean.rare_steps import RareCause
from pinchpoint.analysis.replay import Change
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.run import (
    data_wait_ns,
    free_cores,
    host_looks,
    run_facts,
    workers_busy_ratio,
)
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.evidence.loading import Loads
from pinchpoint.diagnosis.evidence.rare import material
from pinchpoint.diagnosis.evidence.ready_batches import won_if_ready
from pinchpoint.diagnosis.evidence.thread_of_steps import thread_of_steps
from pinchpoint.diagnosis.finding import Evidence
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace

FULL_RATIO = 0.9  # of all cores' time, taken by anybody: looks of a second see short pauses, too
# Of the workers' share: cores that they leave go to other programs, too.
SURE_SHARE = 0.5
SURE_WAITS = 0.75  # of the waits: a fix leaves some of them


@dataclass(frozen=True)
class Won:
    """Of the mean step without the profiler; with ``changes`` where a replay tells it."""

    likely_ns: int
    range_ns: tuple[int, int] | None
    changes: tuple[Change, ...] = ()
    evidence: tuple[Evidence, ...] = ()


FEWEST_LOOKS = 50  # at the thread of the steps: of fewer, a share is told no closer than a seventh


def won_at_most_ns(trace: Trace) -> int | None:
    """Of the mean step without the profiler, all but what its thread computes outside of the
    loader, on a core of its own; None where looks do not tell, or other threads compute, too.

    What batches take on their way, the thread's own part of it among them, takes from the same
    cores, so that the rest of the step is shorter without it, too.
    """
    thread, step_ns = thread_of_steps(trace), mean_without_profiler_ns(trace)
    step_ns = step_ns or corrected_step_ns(trace)
    if thread is None or not step_ns or (run_facts(trace).torch_threads or 1) > 1:
        return None
    if not computes_on_cpu(trace) or sum(one.looks for one in thread.spent) < FEWEST_LOOKS:
        return None
    of_us = sum(one.us for one in thread.spent) + thread.unplaced_us
    mine = (one for one in thread.spent if not any(_LOADS in name for name in one.frames))
    return round(step_ns * (1 - sum(one.on_core_us for one in mine) / max(of_us, 1)))


_LOADS = "torch/utils/data/dataloader.py"


def late_batches(trace: Trace) -> RareCause | None:
    """Steps of the run that are far from typical because they wait for a batch, most time first."""
    return next((one for one in material(trace) if one.kind is GapKind.DATA), None)


def _without_late_batches(trace: Trace, pace_ns: float) -> Won | None:
    """Batches come late in some steps of the run alone, as queues and workers' turns have it: what
    those steps add goes as far as workers then keep up with the typical step."""
    late = late_batches(trace)
    if late is None:
        return None
    lacking_ns = max(round(pace_ns) - late.step_ns, 0)
    won = won_if_ready(trace, max(late.ns_per_step - lacking_ns, 0))
    return Won(won.likely_ns, won.range_ns)


def without_work_of_workers(trace: Trace, found: Loads, gone_ratio: float) -> Won | None:
    """If this share of what workers do were gone; None where the step does not wait for it."""
    facts = run_facts(trace)
    step_ns = mean_without_profiler_ns(trace) or corrected_step_ns(trace)
    step_ns = step_ns or steps(trace).typical_ns
    theirs = facts.workers_ns_per_step
    pace = workers_busy_ratio(trace) * (step_ns or 0) * (1 - gone_ratio)
    if not computes_on_cpu(trace) or not step_ns or facts.user_ns_per_step is None or not theirs:
        waits = Won(found.waits_ns_per_step, None, found.ready)
        return waits if found.starving else _without_late_batches(trace, pace)
    of_process = facts.user_ns_per_step + (facts.kernel_ns_per_step or 0)
    own = _own_ns(trace, of_process, step_ns)
    left, waits_ns = own + theirs * (1 - gone_ratio), data_wait_ns(trace) or 0
    looks = host_looks(trace)
    taken = looks.median("cpu_ratio") if looks else None
    if taken is None or taken < FULL_RATIO:
        if not found.starving:
            return _without_late_batches(trace, pace)
        won = min(waits_ns or found.waits_ns_per_step, max(round(step_ns - pace), 0))
        return Won(won, (round(SURE_WAITS * won), won))
    cores = facts.cores_allowed or facts.cores_there or 1
    alone = own / max(min(facts.torch_threads or 1, cores), 1)
    got = max((of_process + theirs) / step_ns, free_cores(facts, cores), 0.1)
    likely = step_ns - max(alone, left / got, pace)
    most = step_ns - max(alone, left / cores, min(pace, theirs * (1 - gone_ratio)))
    least = SURE_SHARE * gone_ratio * theirs / (of_process + theirs) * step_ns
    if found.starving:
        least = max(least, SURE_WAITS * waits_ns)
    likely, least = max(min(likely, most), 0), max(min(least, likely, most), 0)
    return Won(
        round(likely),
        (round(least), round(max(most, likely))),
        evidence=(
            Evidence("workers, on cores", round(theirs), "ns per step"),
            Evidence("the process itself, on cores", round(of_process), "ns per step"),
            *(
                (Evidence("of it, not waiting for its own threads", round(own), "ns per step"),)
                if own < of_process
                else ()
            ),
            Evidence("of all cores' time, taken", round(taken, 2), "ratio"),
        ),
    )


def _own_ns(trace: Trace, of_process_ns: float, step_ns: float) -> float:
    """What the process computes in a step, as a sum over its cores, without its threads' waits.

    Threads of one operator wait for each other on their cores, turning round, for as long as one of
    them has none: workers take that time of the step twice. Operators are as quick as their fastest
    calls then, and what is outside of them has one thread.
    """
    from pinchpoint.analysis.limits.on_cpu import held_up_ns

    threads, windows = run_facts(trace).torch_threads or 1, judged_steps(trace)
    held = held_up_ns(trace) if threads > 1 else None
    recorded_ns = float((windows.end_ns - windows.start_ns).mean()) if len(windows) else 0.0
    if held is None or not recorded_ns:
        return of_process_ns
    took, fastest = held
    mine = (threads * fastest + max(recorded_ns - took, 0.0)) * step_ns / recorded_ns
    return min(of_process_ns, mine)
