"""What the rules about late ranks share: words, evidence, and what fixing them would give."""

from collections.abc import Sequence

import numpy as np

from pinchpoint.analysis.ranks.job import Job
from pinchpoint.analysis.ranks.late_causes import (
    DEVICE_SUBJECTS,
    MORE_WORK,
    SLOW_DEVICE,
    SLOW_KERNEL,
    UNEVEN_INPUTS,
    WORK_SUBJECTS,
    LateCause,
)
from pinchpoint.analysis.ranks.stragglers import Straggler
from pinchpoint.analysis.ranks.what_if import JobReplay
from pinchpoint.analysis.statistics import mean
from pinchpoint.diagnosis.finding import Evidence, Location

MOST_NAMED = 3  # in a sentence; more are counted
SURE_RATIO, LESS_RATIO = 0.15, 0.25  # as for every replay: see analysis.replay.predict

FIXES = {
    "data": "Give that rank's loader what it needs: even shards, as many workers, local data",
    "sync": "Find what that rank reads back from its device that the others do not",
    "garbage collection": "Collect garbage on all ranks in the same steps: gc.disable(),"
    " then gc.collect() every few hundred steps",
    "checkpoint": "Save asynchronously, or share the saving among ranks",
    "logging": "Log from a thread, or less often",
    "compiling": "Compile before training, with the same shapes on all ranks",
    MORE_WORK: "Share the work out evenly: shards and batches of equal cost",
    UNEVEN_INPUTS: "Give all ranks inputs of about the same size in each step: the sampler or"
    " loader that hands them out there decides; of data sorted by length, deal neighbours out in"
    " turn: batches[rank::world_size]",
    SLOW_DEVICE: "Look at that device: clocks, power cap, temperature, other processes",
    SLOW_KERNEL: "Compare that kernel's inputs and the device with a rank that is quick",
}
_ANY_FIX = "Look at that rank's own recording for what it does in that time"


def ranks_in_words(job: Job, positions: Sequence[int]) -> str:
    """``rank 5``, ``ranks 5, 9 and 2 more``."""
    names = [str(job.facts.ranks[p].rank) for p in positions]
    if len(names) == 1:
        return f"rank {names[0]}"
    if len(names) <= MOST_NAMED:
        return f"ranks {', '.join(names[:-1])} and {names[-1]}"
    return f"ranks {', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"


def since_in_words(job: Job, straggler: Straggler) -> str:
    """Since which step, where it was not from the first one on."""
    first = straggler.since == 0
    return "" if first else f", since step {int(job.facts.step_numbers[straggler.since])}"


def reasons_in_words(job: Job, positions: Sequence[int]) -> str:
    """The main reason, or where they differ that of each of the first ranks."""
    main = {p: doing_of(job, p)[0].what for p in positions[:MOST_NAMED] if doing_of(job, p)}
    if len(set(main.values())) == 1:
        return f": {next(iter(main.values()))}"
    return "".join(
        f"{'; ' if i else ': '}rank {job.facts.ranks[p].rank}: {what}"
        for i, (p, what) in enumerate(main.items())
    )


def doing_of(job: Job, rank: int) -> tuple[LateCause, ...]:
    """What a late rank (its position) did beyond its peers; empty if that is not known."""
    return next((late.doing for late in job.late_ranks if late.rank == rank), ())


def fix_for(doing: Sequence[LateCause]) -> str:
    """The next thing to do about the main reason."""
    return FIXES.get(doing[0].subject, _ANY_FIX) if doing else _ANY_FIX


def evidence_of(job: Job, rank: int) -> tuple[Evidence, ...]:
    """How late a rank is, and what it did meanwhile."""
    between, number = job.between, job.facts.ranks[rank].rank
    late = job.over.sure_ns[rank]
    facts = [
        Evidence(f"own time of rank {number} beyond its peers", round(mean(late)), "ns per step")
    ]
    facts += [
        Evidence(
            f"rank {number}: {doing.what}",
            doing.ns_per_step,
            "ns per step",
            doing.place.at_ns if doing.place else None,
            doing.place.name if doing.place else None,
        )
        for doing in doing_of(job, rank)
    ]
    if between.took_part[rank]:
        share = round(float(between.was_last[rank] / between.took_part[rank]), 3)
        facts.append(Evidence(f"collectives to which rank {number} came last", share, "ratio"))
    return tuple(facts)


def waiting_of_others(job: Job, ranks: Sequence[int]) -> Evidence:
    """How long everybody else waited in collectives."""
    others = np.delete(job.between.waiting_ns, list(ranks), axis=0)
    return Evidence("waiting of the other ranks", round(mean(others)), "ns per step")


def place_of(doing: Sequence[LateCause]) -> Location | None:
    """Where in the program the main reason is."""
    place = doing[0].place if doing else None
    if place is None or not (place.file or place.function or place.operator):
        return None
    return Location(place.file, place.line, place.function, operator=place.operator)


def at_place(job: Job, ranks: Sequence[int]) -> str:
    """Where the main reason is, as the end of a sentence about one rank; empty for several."""
    doing = doing_of(job, ranks[0])
    place = place_of(doing)
    if place is None or len(ranks) != 1:
        return ""
    comes_in = doing[0].subject == UNEVEN_INPUTS
    return f"; they come in at {place}" if comes_in else f", most of it in {place}"


def saving(job: Job, ranks: Sequence[int]) -> tuple[int, int]:
    """Least and most that the job's step wins if these ranks (positions) are late no more.

    A rank with too much work passes it on: the others get longer. Everything else goes away.
    """
    doing = doing_of(job, ranks[0])
    work = bool(doing) and doing[0].subject in WORK_SUBJECTS
    if job.replay is None:
        cost = job.late.cost_ns / 2 if work and len(job.facts.ranks) == 2 else job.late.cost_ns
        return round((1 - LESS_RATIO) * cost), round(cost)
    gain = gain_of(job.replay, ranks, work=work)
    return round((1 - LESS_RATIO) * gain), round((1 + SURE_RATIO) * gain)


def saving_of_even_steps(job: Job, doing: Sequence[LateCause]) -> tuple[int, int] | None:
    """The same if each step's work was shared out evenly; None where not work is the reason."""
    if job.replay is None or not doing or doing[0].subject not in WORK_SUBJECTS:
        return None
    gain = gain_of(job.replay, np.flatnonzero(job.facts.usable).tolist(), work=True)
    return round((1 - LESS_RATIO) * gain), round((1 + SURE_RATIO) * gain)


def gain_of(replay: JobReplay, ranks: Sequence[int], *, work: bool) -> int:
    """What replay says the step wins."""
    late = np.array(ranks, np.int64)
    own = replay.balanced(late) if work else replay.as_peers(late)
    return max(replay.base_ns - replay.ask(own), 0)


def by_the_host(doing: Sequence[LateCause]) -> bool:
    """Whether the main reason is on the host."""
    return bool(doing) and doing[0].subject not in (*DEVICE_SUBJECTS, "other")
