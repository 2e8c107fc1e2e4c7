"""Parts of the document about a job that say who is late, what is odd, and what would help."""

import numpy as np

from pinchpoint.analysis.ranks.accounting import scaling
from pinchpoint.analysis.ranks.job import Job
from pinchpoint.analysis.ranks.late_causes import WORK_SUBJECTS, LateCause
from pinchpoint.analysis.ranks.timeline import timeline
from pinchpoint.report.documents.rank_records import Records
from pinchpoint.report.documents.ranks import (
    BucketItem,
    DoingItem,
    IncidentItem,
    LaneItem,
    MismatchItem,
    PieceItem,
    ScalingItem,
    StragglerItem,
    TimelineItem,
    WhatIfItem,
)

WORTH_A_WORD_RATIO = 0.01  # of the step: lateness below it is not listed


def _doing(doing: LateCause) -> DoingItem:
    place = doing.place
    where = None
    if place is not None:
        line = f"{place.file}:{place.line}" if place.file and place.line else place.file
        where = f"{place.function} ({line})" if place.function and line else line or place.operator
    return DoingItem(
        subject=doing.subject,
        what=doing.what,
        ns_per_step=doing.ns_per_step,
        where=where,
        at_ns=place.at_ns if place else None,
    )


def stragglers(records: Records, job: Job) -> tuple[StragglerItem, ...]:
    """Ranks that hold up the others again and again, with what they did."""
    doing = {late.rank: late.doing for late in job.late_ranks}
    numbers, between = job.facts.step_numbers, job.between
    if job.late.cost_ns < WORTH_A_WORD_RATIO * job.step_ns:
        return ()
    return tuple(
        StragglerItem(
            rank=job.facts.ranks[s.rank].rank,
            path=records.entries[s.rank].path,
            excess_ns=s.excess_ns,
            since_step=int(numbers[s.since]),
            late_steps=tuple(int(numbers[i]) for i in s.late),
            last_ratio=(
                round(float(between.was_last[s.rank] / between.took_part[s.rank]), 3)
                if between.took_part[s.rank]
                else None
            ),
            doing=tuple(_doing(d) for d in doing.get(s.rank, ())),
        )
        for s in job.late.stragglers
    )


def incidents(job: Job) -> tuple[IncidentItem, ...]:
    """Steps that waited for one rank."""
    return tuple(
        IncidentItem(
            rank=job.facts.ranks[i.rank].rank,
            step=int(job.facts.step_numbers[i.step]),
            excess_ns=i.excess_ns,
        )
        for i in job.late.incidents
        if i.excess_ns >= WORTH_A_WORD_RATIO * job.step_ns
    )


def mismatches(job: Job) -> tuple[MismatchItem, ...]:
    """Collectives on which ranks do not agree."""
    return tuple(
        MismatchItem(
            what=m.what,
            group=m.group,
            call=m.call,
            place=m.place,
            step=m.step,
            instead=m.instead,
            ranks=tuple(job.facts.ranks[r].rank for r in m.ranks),
            count=m.count,
        )
        for m in job.mismatches
    )


def scaling_item(job: Job) -> ScalingItem | None:
    """What the job keeps; None where ranks never met."""
    found = scaling(job) if job.met else None
    if found is None:
        return None
    return ScalingItem(
        efficiency_ratio=round(found.efficiency_ratio, 4),
        waiting_ns_per_step=found.waiting_ns_per_step,
        transfer_ns_per_step=found.transfer_ns_per_step,
        untold_ns_per_step=found.untold_ns_per_step,
        limit=found.limit,
        replay_error_ratio=round(job.replay.identity_error, 4) if job.replay else None,
    )


def what_if(job: Job) -> tuple[WhatIfItem, ...]:
    """The step under other conditions."""
    replay = job.replay
    if replay is None or not job.met:
        return ()
    first = job.late_ranks[0].doing[:1] if job.late_ranks else ()
    shared = bool(first) and first[0].subject in WORK_SUBJECTS
    everybody = np.flatnonzero(job.facts.usable)
    level = replay.balanced(everybody) if shared else replay.all_as_median()
    how = "the work shared out evenly" if shared else "no rank slower than the median of its peers"
    half = {kind: 0.5 for row in job.between.kinds for kind in row.numbers}
    # How long a rank waits in a replay is an estimate, so a replay with less work may come out a
    # little longer than the recorded step, which it cannot be.
    late = min(replay.ask(level), replay.base_ns)
    quick = min(replay.ask(transfer_factors=half), replay.base_ns)
    hidden = min(replay.ask(hidden=True), quick)
    asked = (
        ("no-late-ranks", how, late),
        ("link-twice-as-fast", "transfers in half the time", quick),
        ("transfers-hidden", "all transfers behind the ranks' own work", hidden),
        (
            "both",
            "no late ranks, and transfers hidden",
            min(replay.ask(level, hidden=True), late, hidden),
        ),
    )
    return tuple(WhatIfItem(id=i, label=label, step_ns=ns) for i, label, ns in asked)


def buckets(job: Job) -> tuple[BucketItem, ...]:
    """How large messages should be."""
    return tuple(
        BucketItem(
            group=b.group,
            kind=b.kind,
            latency_ns=b.latency_ns,
            bytes_per_s=b.bytes_per_s,
            mean_bytes=b.mean_bytes,
            per_step=round(b.per_step, 3),
            reached_ratio=round(b.reached_ratio, 4),
            bucket_bytes=b.bucket_bytes,
            saving_ns_per_step=b.saving_ns_per_step,
        )
        for b in job.buckets
    )


def timeline_item(records: Records, job: Job) -> TimelineItem | None:
    """One step of some ranks; None without steps."""
    found = timeline(records.summaries, job)
    if found is None:
        return None
    lanes = (
        LaneItem(
            rank=job.facts.ranks[lane.rank].rank,
            start_ns=lane.start_ns,
            end_ns=lane.end_ns,
            pieces=tuple(
                PieceItem(what=p.what, start_ns=p.start_ns, end_ns=p.end_ns) for p in lane.pieces
            ),
        )
        for lane in found.lanes
    )
    return TimelineItem(step=found.step, lanes=tuple(lanes))
