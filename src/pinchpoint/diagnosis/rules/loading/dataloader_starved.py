"""The step waits for its batch.

## What it looks for
Time of the training thread in the loader's `next()`, and a device that idles meanwhile. With worker
processes that is waiting; without (`num_workers=0`) the batch is prepared on the very thread that
should launch kernels. Where Python frames are recorded inside `next()`, only time in which the
thread blocks counts as waiting for workers: drawing the indices of a batch is its own work, which
recording makes longer. Long waits in a few steps count for the mean step. Where fewer batches were
taken than the loader's queue may have held when the recording began, only a wait counts that lasts
longer than a whole queue would: a full one would not have hidden it. How often it comes does not
show, and confidence is low. A run too short to time its steps is judged by the looks at its main
thread: where most of them found it in the loader's `next()`, the recorded steps lived on a full
queue.

## Why it matters
Whatever the model does, it cannot run faster than its batches arrive.

## How to fix it
Give the loader worker processes (`num_workers`), pinned memory and prefetching. If workers are
there and still too slow, look at what they do: decoding, transforms, many small files, collating.
Where they make batches in a small part of their time, send fewer, larger tensors: the collate
function makes them; looks at the thread that takes batches in say whether it is at that. Workers of
a dataset with an iterator each run all of it: what stands before the place where they divide its
samples is done by each, for all samples, and more workers win nothing until it stands behind. In
`pinchpoint run` a worker counts the calls of one batch: work that runs once for each of its samples
is divided already, and as many times as there are workers is done by all of them. What
is said is a step that waits for no batch, as in each of the loaders whose fix was measured; the
range begins where a quarter of the waits stay. In programs on a CPU the gain is by the waits that
the run timed, and by the cores that workers leave to the step where all of them are taken.

## When to ignore it
Where the wait falls into time in which the device is busy anyway.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.mean.mean_step import at_the_rate_of_the_run
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.replay.graph import LEAST_WAITING_RATIO
from pinchpoint.analysis.run import lacked_cores, run_facts, workers_at_once
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.evidence.exceptions import evidence, sentence
from pinchpoint.diagnosis.evidence.loading import (
    READY_BATCH_RATIO,
    ROUNDS_TO_TELL,
    Loads,
    RareWaits,
    collated_in,
    loads,
    made_ratio_if_sent,
    queue_of,
    rare_waits,
    with_workers,
    won_if_sent_at_once_ns,
    workers_without_room,
)
from pinchpoint.diagnosis.evidence.rare import LEAST_RATIO, rare_found
from pinchpoint.diagnosis.evidence.ready_batches import won_if_ready
from pinchpoint.diagnosis.evidence.received import Received, received
from pinchpoint.diagnosis.evidence.shared_cores import (
    Won,
    without_work_of_workers,
    won_at_most_ns,
)
from pinchpoint.diagnosis.evidence.taken_apart import TakenApart, in_few_tensors, taken_apart
from pinchpoint.diagnosis.evidence.whole_run import LEAST_RUN_RATIO, waits_for_loader
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import CPU_AND_DEVICE, Need, Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NO_KNOB, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

if TYPE_CHECKING:
    from pinchpoint.diagnosis.evidence.workers import WorkersDo


RULE = Rule(
    needs=("host_ops",),
    record=CPU_AND_DEVICE,
    periodic=True,
    knobs=("num_workers",),
    advice=NO_KNOB,
    confirm="pinchpoint try --knob num_workers=8 -- python train.py",
)


def check(trace: Trace) -> Iterator[Found | Small]:
    """Waits for the loader inside the steps: in many of them, or long ones in a few."""
    found = loads(trace)
    if found is None or not found.starving:
        if found is not None and (one_by_one := received(trace)) is not None:
            yield _received(trace, found, one_by_one)
            return
        whole = tuple(_of_the_run(trace))
        yield from whole
        if any(isinstance(one, Found) for one in whole):
            return
        rare = tuple(_rarely(trace))
        yield from rare if rare or found is None else _now_and_then(trace, found)
        return
    doing = "waits for worker processes" if found.in_workers else "prepares the batch itself"
    from pinchpoint.diagnosis.evidence.workers import loader_does, workers_do

    seen = workers_do(trace) if found.in_workers else loader_does(trace)
    made = made_ratio_if_sent(trace, found)
    if made is not None:
        yield _sent(trace, found, made)
        return
    won = _won_if_divided(trace, found, seen)
    likely_ns, gains = (won.likely_ns, won.evidence) if won else (0, ())
    yield Found(
        summary=(
            f"The training thread {doing}, {duration(found.waits_ns_per_step)}"
            " of each recorded step"
            + (f", mostly in {seen.said}" if seen and seen.said else "")
            + (_FOR_ALL.format(workers_at_once(trace)) if _for_all(trace, seen) else "")
        ),
        evidence=(
            *found.spans.evidence,
            *(seen.evidence if seen else ()),
            *_counted(seen),
            *gains,
        ),
        cost_ns_per_step=max(found.waits_ns_per_step, likely_ns),
        location=(seen.location if seen else None) or found.spans.place,
        saving_ns_per_step=won.range_ns if won else None,
        likely_saving_ns=won.likely_ns if won else None,
        **_advice(trace, found, seen),
        **_changes(trace, found),
    )


def _for_all(trace: Trace, seen: "WorkersDo | None") -> bool:
    return seen is not None and seen.done_by_all(workers_at_once(trace)) is True


def _counted(seen: "WorkersDo | None") -> Iterator[Evidence]:
    if seen is not None and seen.calls_each is not None:
        yield Evidence("its calls for each sample of a batch", seen.calls_each, "count")


def _won_if_divided(trace: Trace, found: Loads, seen: "WorkersDo | None") -> Won | None:
    """On a CPU, what a step wins where workers each do the work of all, and divide it then: they
    leave cores to the step, too. None where that wins less than the waits do."""
    workers = workers_at_once(trace)
    divides = seen is not None and workers > 1 and seen.done_by_all(workers) is not False
    if not (found.in_workers and divides and computes_on_cpu(trace)):
        return None
    won = without_work_of_workers(trace, found, 1 - 1 / workers)
    if won is None or won.range_ns is None or won.likely_ns <= found.waits_ns_per_step:
        return None
    least_ns = min(won.range_ns[0], round(LEAST_RATIO * found.waits_ns_per_step))
    return replace(won, range_ns=(least_ns, won.range_ns[1]))


def _changes(trace: Trace, found: Loads) -> dict[str, Any]:
    """A worker needs a core of its own. Where other programs have them it may win nothing: with one
    on two full cores (load 14) a step of 469 ms took 0.93 to 1.07 times as long, with 329 said."""
    workers = with_workers(trace, found)
    if found.in_workers or not lacked_cores(trace):
        return {"changes": workers}
    as_it_is = (ScaleHostSpans(found.spans.rows, 1.0),)
    return {"changes": as_it_is, "at_best": workers}


def _received(trace: Trace, load: Loads, found: Received) -> Found:
    """Batches of many tensors, which the training thread itself takes in: no wait shows."""
    place = collated_in(trace)
    return Found(
        summary=(
            "The training thread takes the tensors of its batches from worker processes one by"
            f" one, {duration(found.ns_per_step)} of each step ({found.looks} of {found.of} looks"
            " found it building one from shared memory)"
            + (f"; {place} makes what is sent" if place else "")
        ),
        evidence=(
            Evidence("taking tensors from workers, by looks", found.ns_per_step, "ns per step"),
            Evidence("looks that found it there", found.looks, f"of {found.of}"),
            Evidence("in the loader's next(), as timed", found.waits_ns_per_step, "ns per step"),
        ),
        # Workers send each tensor, too, and the thread waits for that in the rest of next().
        cost_ns_per_step=found.waits_ns_per_step,
        saving_ns_per_step=(round(LEAST_RATIO * found.ns_per_step), found.waits_ns_per_step),
        likely_saving_ns=(found.ns_per_step + found.waits_ns_per_step) // 2,
        location=place or load.spans.place,
        fix=_FEW_TENSORS,
        hint=_FEW_TENSORS_HINT,
        confirm=ANY_PROGRAM,
        confidence="medium",
    )


def _sent(trace: Trace, found: Loads, made_ratio: float) -> Found:
    """Batches that workers make in no time: what they compute is not where to look."""
    place, won_ns = collated_in(trace), won_if_sent_at_once_ns(trace, made_ratio)
    most_ns = max(won_at_most_ns(trace) or 0, won_ns or 0)
    timed_ns = won_ns if won_ns is not None and won_ns > found.waits_ns_per_step else 0
    stage = taken_apart(trace)
    one_by_one = stage if stage is not None and stage.bounds else None
    way = "it waits for their way" if one_by_one is None else _way(one_by_one)
    return Found(
        summary=(
            "The training thread waits for worker processes, which make batches in"
            f" {100 * made_ratio:.1g} % of their time: {way},"
            f" {duration(found.waits_ns_per_step)} of each recorded step"
            + (f", {duration(timed_ns)} by the run's own times" if timed_ns else "")
            + (f"; {place} makes what is sent" if place else "")
        ),
        evidence=(
            *found.spans.evidence,
            Evidence("of their time, workers make batches", made_ratio, "ratio"),
            *(() if one_by_one is None else one_by_one.evidence),
            *((Evidence("waits as the run timed them", timed_ns, "ns per step"),) * bool(timed_ns)),
        ),
        cost_ns_per_step=max(found.waits_ns_per_step, timed_ns),
        # Few large tensors are the advice: what many cost the thread of the steps goes, too.
        changes=(*with_workers(trace, found), *(in_few_tensors(trace) if one_by_one else ())),
        saving_ns_per_step=(round(LEAST_RATIO * won_ns), most_ns) if won_ns is not None else None,
        likely_saving_ns=won_ns,
        location=place or found.spans.place,
        **_advice(trace, found),
    )


def _way(stage: TakenApart) -> str:
    return (
        f"thread {stage.thread} takes the tensors of a batch from them one by one,"
        f" {100 * stage.receiving_ratio:.0f} % of its time, and it waits for that"
    )


def _rarely(trace: Trace) -> Iterator[Found]:
    """Waits in steps that are far from typical, with what workers were seen to do."""
    from pinchpoint.diagnosis.evidence.workers import workers_do

    seen, load = workers_do(trace), loads(trace)
    for one in rare_found(trace, (GapKind.DATA,), fix=_WITH_WORKERS, hint=_HINT):
        won = won_if_ready(trace, one.cost_ns_per_step or 0)
        found = msgspec.structs.replace(
            one, saving_ns_per_step=won.range_ns, likely_saving_ns=won.likely_ns
        )
        if seen is None or not seen.said:
            known = {} if load is None else _advice(trace, load)
            yield msgspec.structs.replace(found, **known)
            continue
        yield msgspec.structs.replace(
            found,
            summary=f"{found.summary}. Workers make it, mostly {seen.said}",
            evidence=(*found.evidence, *seen.evidence),
            location=seen.location or found.location,
            **_as_seen(trace, seen),
        )


def _as_seen(trace: Trace, seen: "WorkersDo") -> dict[str, Any]:
    if seen.rows:
        return {"fix": _ROWS, "hint": _ROWS_HINT}
    if seen.streams and seen.done_by_all(workers_at_once(trace)) is not False:
        fix = _DIVIDE if _for_all(trace, seen) else _STREAMS
        return {"fix": fix, "hint": None, "confirm": ANY_PROGRAM}
    return {"fix": _SEEN, "hint": _HINT}


def _of_the_run(trace: Trace) -> Iterator[Found | Small]:
    """Waits between the steps of a run that recorded steps do not show."""
    waits = waits_for_loader(trace)
    if waits is None or waits.ratio < LEAST_WAITING_RATIO:
        return
    if waits.ratio < LEAST_RUN_RATIO:
        yield Small(waits.ratio, LEAST_RUN_RATIO, "the run")
        return
    from pinchpoint.diagnosis.evidence.workers import workers_do

    done = workers_do(trace)
    said = f", mostly in {done.said}" if done and done.said else ""
    percent = f"{100 * waits.ratio:.0f} %"
    yield Found(
        summary=(
            f"Of the time between the steps of the run, the main thread spends {percent} waiting"
            f" for its next batch; the recorded steps do not show it. Workers make them{said}"
            if done
            else f"Of the time between the steps of the run, the main thread spends {percent} in"
            " the loader's next(); the recorded steps do not show it"
        ),
        evidence=(
            Evidence("looks at the main thread in next()", waits.looks, f"of {waits.of}"),
            *(done.evidence if done else ()),
        ),
        location=(done.location if done else None) or waits.location,
        **(_as_seen(trace, done) if done else {"fix": _WITH_WORKERS, "hint": _HINT}),
        consequence=f"{percent} of the run's time between its first steps and its end",
        run_ratio=waits.ratio,
    )


def _advice(trace: Trace, found: Loads, seen: "WorkersDo | None" = None) -> dict[str, Any]:
    """Fix, hint and proof, by who makes the batches and whether the cores have room for more."""
    pinned = " pin_memory=True," if trace.device_ops is not None else ""  # for copies to a device
    more = f"DataLoader(..., num_workers=8,{pinned} persistent_workers=True)"
    if not found.in_workers:
        free = ", and cores: other programs have them" if lacked_cores(trace) else ""
        return {"fix": f"Give the loader worker processes{free}", "hint": more}
    if seen and seen.rows:
        return {"fix": _ROWS, "hint": more}
    if made_ratio_if_sent(trace, found) is not None:
        return {"fix": _FEW_TENSORS, "hint": _FEW_TENSORS_HINT, "confirm": ANY_PROGRAM}
    if seen and (for_all := seen.done_by_all(workers_at_once(trace))) is not False:
        fix = _DIVIDE if for_all else _STREAMS
        return {"fix": fix, "hint": None, "confirm": ANY_PROGRAM}
    full = workers_without_room(trace, found)
    if full is not None:
        return {"fix": _no_room(trace, full), "hint": None, "confirm": ANY_PROGRAM}
    return {"fix": _SEEN if seen else _WITH_WORKERS, "hint": more}


def _no_room(trace: Trace, workers: int) -> str:
    cores = run_facts(trace).cores_allowed or 0
    return (
        f"Make what the workers do there quicker, or do it once before: there are {workers} of"
        f" them for {cores:g} core{'s' if cores != 1 else ''}, and more would only help where they"
        " wait for files or a network"
    )


def _now_and_then(trace: Trace, found: Loads) -> Iterator[Found]:
    rare = rare_waits(trace, found)
    if rare is not None:
        yield _rare(trace, found, rare)
        return
    queue = queue_of(trace, found)
    empty = rare_waits(trace, found, within_queue=True)
    if empty is not None:
        yield _rare(trace, found, empty, sure=False)
        return
    if queue.tells or queue.depth is None or (trace.run and trace.run.data_wait_ns):
        return
    enough = queue.depth + ROUNDS_TO_TELL * (found.workers or 1)
    raise NotChecked(
        f"the recording takes {queue.taken} batches, and as many as {queue.depth} may have been"
        f" ready when it began ({found.workers} workers, and two for each unless prefetch_factor"
        " says otherwise): whether the loader keeps up does not show",
        Record(f"{enough} steps or more", Need.LONGER),
    )


def _rare(trace: Trace, found: Loads, rare: RareWaits, *, sure: bool = True) -> Found:
    ns = at_the_rate_of_the_run(trace, rare.cause.ns_per_step)
    return Found(
        summary=sentence(trace, rare.mean, rare.cause),
        evidence=(*evidence(trace, rare.mean, rare.cause), *found.spans.evidence),
        cost_ns_per_step=ns,
        changes=(ScaleHostSpans(rare.rows, READY_BATCH_RATIO),),
        saving_ns_per_step=(round(LEAST_RATIO * ns), ns),
        location=found.spans.place,
        confidence="medium" if sure else "low",
        **_advice(trace, found),
    )


_HINT = "DataLoader(..., num_workers=8, persistent_workers=True)"
_SEEN = "Make what the workers do there quicker, or give the loader more of them"
_FOR_ALL = ", {} times for each sample of a batch: each of as many workers does it for all of them"
_DIVIDE = (
    "Divide the samples among the workers (get_worker_info) before this work: each of them does it"
    " for all, and throws away what is the share of others"
)
_STREAMS = (
    "Make what the workers do there quicker. Each of them runs the whole iterator of the dataset:"
    " if they divide its samples (get_worker_info) behind this work, each does all of it, and more"
    " workers win nothing; divide before it"
)
_ROWS = "Let the dataset fetch a whole batch by its list of indices, and stack nothing"
_ROWS_HINT = "def __getitems__(self, i): return self.x[i], self.y[i]  # with collate_fn=lambda b: b"
_FEW_TENSORS = (
    "Send a batch as a few large tensors, and take it apart where it is used: each tensor of a"
    " batch is a message, a file of shared memory and a mapping of its own"
)
_FEW_TENSORS_HINT = (
    "return torch.cat(parts), torch.tensor([len(p) for p in parts])  # in collate_fn"
)
_WITH_WORKERS = (
    "Look at what the workers do (py-spy dump on a worker shows it), and give the loader more"
)
