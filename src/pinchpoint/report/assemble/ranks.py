"""From the records of all ranks to the one document about the job."""

from collections import Counter
from collections.abc import Callable, Iterable
from sys import intern

import msgspec
import numpy as np

from pinchpoint.analysis.ranks.accounting import breakdown, scaling, without_profiler
from pinchpoint.analysis.ranks.job import Job, reduce
from pinchpoint.analysis.statistics import median_of_ranks
from pinchpoint.diagnosis.engine import Ranked
from pinchpoint.diagnosis.finding import Evidence, Finding, Unanswered, shared
from pinchpoint.diagnosis.job import (
    JobDiagnosis,
    diagnose_job,
    place_of,
)
from pinchpoint.diagnosis.rank_finding import ASK_ALL_RANKS, JobFinding, RankFinding
from pinchpoint.report.assemble.findings import finding_item, unanswered
from pinchpoint.report.assemble.ladder import ladder_of
from pinchpoint.report.assemble.ranks_items import (
    WORTH_A_WORD_RATIO,
    buckets,
    incidents,
    mismatches,
    scaling_item,
    stragglers,
    timeline_item,
    what_if,
)
from pinchpoint.report.assemble.ranks_tables import Row, heat_map, rank_rows, tables
from pinchpoint.report.documents.ladder import LadderInfo
from pinchpoint.report.documents.rank_records import FoundOnRank, RankRecord, Records
from pinchpoint.report.documents.ranks import (
    ClockInfo,
    FileNote,
    JobFindingItem,
    JobInfo,
    JobSteps,
    RanksReport,
)
from pinchpoint.report.documents.report import PartOfStep
from pinchpoint.report.quantity import duration, percent

MOST_RANKS_LISTED = 64  # in one finding
_ELSEWHERE = "these recordings cannot show it: pinchpoint diagnose FILE --verbose"


def report_on(
    records: Records, keep: Callable[[int, Callable[[int], Row]], None] | None = None
) -> RanksReport:
    """The document. Reads the records several times, one at a time.

    ``keep`` is given how many ranks there are, and what stands in the table of all about each.
    """
    if not records.entries:
        return RanksReport(job=_job_info(records), verdict="No recording could be used.")
    job = reduce(records.summaries)
    if keep is not None:
        keep(len(job.facts.ranks), rank_rows(records, job))
    per_rank, silent = _of_ranks(records)
    said = diagnose_job(job, per_rank)
    alone = _only_rank(records, job)
    steps, findings = _steps(job, said), _findings(records, job, said)
    ladder = ladder_of(findings, steps.unprofiled_ns_predicted, steps.typical_ns)
    if alone is not None:
        steps, findings, ladder = (
            _steps_of(alone, steps),
            _own_findings(alone, job),
            alone.fix_ladder,
        )
    return RanksReport(
        job=_job_info(records, job),
        clocks=_clocks(job),
        steps=steps,
        breakdown=_breakdown(job),
        verdict=_verdict(job),
        findings=_in_order(findings, ladder),
        fix_ladder=ladder,
        not_checked=_unanswered(said, "not checked", silent),
        crashed=_unanswered(said, "crashed", ()),
        stragglers=stragglers(records, job),
        incidents=incidents(job),
        mismatches=mismatches(job),
        scaling=scaling_item(job),
        what_if=what_if(job),
        buckets=buckets(job),
        heat_map=heat_map(job),
        timeline=timeline_item(records, job),
        tables=tables(records, job),
    )


def _of_ranks(records: Records) -> tuple[list[RankFinding], tuple[str, ...]]:
    """Findings of all ranks, and the rules that no rank could answer."""
    found: list[RankFinding] = []
    declined: Counter[str] = Counter()
    for rank, record in enumerate(records.records()):
        found += [
            RankFinding(
                intern(f.item.id),
                rank,
                f.saving_ns,
                intern(_place(f.item)),
                _saving_range(f),
                f.far_steps,
                f.in_steps_ns,
                f.in_collectives,
                f.beside_ns,
            )
            for f in record.found
        ]
        declined.update(record.not_checked)
    silent = tuple(sorted(i for i, n in declined.items() if n == len(records.entries)))
    return found, silent


def _saving_range(found: FoundOnRank) -> tuple[int, int] | None:
    """What the rank's own prediction says that it wins, at least and at most."""
    step_ns, ends = found.item.predicted_step_ns, found.item.predicted_range_ns
    if step_ns is None or ends is None:
        return None
    base_ns = step_ns + found.saving_ns
    return (max(base_ns - ends[1], 0), max(base_ns - ends[0], 0))


def _job_info(records: Records, job: Job | None = None) -> JobInfo:
    ranks = job.facts.ranks if job else ()
    known = [r.world_size for r in ranks if r.world_size]
    world = max(known, default=None)
    refused = [
        FileNote(path=e.path, why=f"{e.path}: {r.refused}", rank=r.rank)
        for e, r in zip(records.entries, ranks, strict=False)
        if r.refused is not None
    ]
    usable = {r.rank for r in ranks if r.refused is None}
    named = {e.rank for e in records.unreadable if e.rank is not None}
    expected = set(range(world or max(usable | named, default=-1) + 1))
    return JobInfo(
        ranks=len(usable),
        world_size=world,
        files=max(records.files, len(records.entries) + len(records.unreadable)),
        devices=dict(Counter(r.device or "no device" for r in ranks if r.refused is None)),
        backends=tuple(sorted({r.backend for r in ranks if r.backend})),
        events=sum(r.events for r in ranks),
        point_to_point=sum(r.point_to_point for r in ranks),
        missing=tuple(sorted(expected - usable)),
        truncated=tuple(r.rank for r in ranks if r.truncated),
        unreadable=(
            *(FileNote(path=e.path, why=e.error or "", rank=e.rank) for e in records.unreadable),
            *refused,
        ),
        left_out=tuple(FileNote(path=item.path, why=item.why) for item in records.left_out),
        shards_missing=records.shards_missing,
    )


def _clocks(job: Job) -> ClockInfo:
    clocks, usable = job.clocks, job.facts.usable
    aligned = clocks.aligned & usable
    spread = clocks.uncertainty_ns[aligned & (clocks.anchors > 0)]
    offset, drift = np.abs(clocks.offset_ns[aligned]), np.abs(clocks.drift[aligned])
    alone = np.flatnonzero(usable & ~clocks.aligned) if len(usable) > 1 else ()
    return ClockInfo(
        matched_by=job.matched_by,
        aligned=int(aligned.sum()),
        not_aligned=tuple(job.facts.ranks[int(r)].rank for r in alone),
        apart_ns=_apart_ns(job) if len(alone) else None,
        uncertainty_ns=clocks.typical_uncertainty_ns,
        worst_uncertainty_ns=round(float(spread.max())) if len(spread) else None,
        largest_offset_ns=int(offset.max()) if len(offset) else None,
        largest_drift_ppm=round(float(drift.max()) * 1e6, 2) if len(drift) else None,
    )


def _apart_ns(job: Job) -> int | None:
    """Time in which no two of the recordings can have met; None where all overlap."""
    spans = [(r.begin_ns, r.end_ns) for r in job.facts.ranks if r.begin_ns is not None]
    apart = max((b for b, _ in spans), default=0) - min((e or 0 for _, e in spans), default=0)
    return apart if apart > 0 else None


def _steps(job: Job, said: JobDiagnosis) -> JobSteps:
    window = job.facts.window_ns[job.facts.usable]
    typical = sum(s.ns_per_step for s in breakdown(job))
    own = job.facts.own_steps
    # A window may begin or end inside a step on one rank and just beside it on another.
    fewer = np.flatnonzero((own > 0) & (own < own.max(initial=0) - 1))
    return JobSteps(
        numbers=tuple(job.facts.step_numbers.tolist()),
        duration_ns=tuple(median_of_ranks(window).round().astype(int).tolist()),
        typical_ns=typical or None,
        unprofiled_ns_predicted=said.base_ns,
        most_of_a_rank=int(own.max(initial=0)) or None,
        fewest_of_a_rank=int(own[own > 0].min(initial=1 << 62)) if own.any() else None,
        ranks_with_fewer=tuple(job.facts.ranks[int(r)].rank for r in fewer),
    )


def _breakdown(job: Job) -> tuple[PartOfStep, ...]:
    without = {s.part.id: s.ns_per_step for s in without_profiler(job, job.base_ns)}
    return tuple(
        PartOfStep(
            part=s.part.id,
            label=s.part.label,
            group=s.part.group,
            ns_per_step=s.ns_per_step,
            unprofiled_ns_per_step=without.get(s.part.id, 0),
        )
        for s in breakdown(job)
    )


def _verdict(job: Job) -> str:
    found = scaling(job)
    if found is None:
        return "No rank completed a step; nothing can be said about time."
    if int(job.facts.usable.sum()) == 1:
        return "Only one rank's recording is here: who waits for whom, all of them together show."
    if not job.met:
        return (
            "No collective of one rank could be matched with one of another:"
            f" {percent(1 - found.efficiency_ratio)} % of each step lies between ranks, and"
            " whether somebody is late there is not known."
        )
    own = f"{percent(found.efficiency_ratio)} % of each step is the ranks' own work"
    if found.limit == "nothing":
        return f"{own}: hardly anything is lost between them."
    total = sum(s.ns_per_step for s in without_profiler(job))
    lost = [
        f"{duration(ns)} ({percent(ns / total)} %) to {what}"
        for ns, what in sorted(
            (
                (found.waiting_ns_per_step, "waiting for the last rank"),
                (found.transfer_ns_per_step, "transfers that nothing hides"),
                (found.untold_ns_per_step, "one of both: the recordings do not say which"),
            ),
            reverse=True,
        )
        if ns >= WORTH_A_WORD_RATIO * total
    ]
    return f"{own}; it loses {' and '.join(lost)}."


def _findings(records: Records, job: Job, said: JobDiagnosis) -> tuple[JobFindingItem, ...]:
    wanted = {f.shown_by for f in said.found if f.shown_by is not None}
    shown = {}
    for rank, record in enumerate(records.records() if wanted else ()):
        if rank in wanted:
            best_last = reversed(record.found)
            items_of = {(f.item.id, _place(f.item)): f.item for f in best_last}
            shown[rank] = (record.path, items_of)
    items = []
    for found in said.found:
        if found.finding is not None:
            item = finding_item(Ranked(found.id, found.finding, found.predicted, found.saving_ns))
            items.append(_item(job, found, item, None))
        elif found.shown_by is not None:
            path, of_rank = shown[found.shown_by]
            items.append(_item(job, found, of_rank[found.id, found.of_ranks[0].place], path))
    return tuple(items)


def _place(item: Finding) -> str:
    return "" if item.location is None else place_of(item.location.function, item.location.file)


def _in_order(
    findings: tuple[JobFindingItem, ...], ladder: LadderInfo | None
) -> tuple[JobFindingItem, ...]:
    """As the ladder has them; those without a gain in time last."""
    rungs = () if ladder is None else ladder.rungs
    place = {rung.id: at for at, rung in enumerate(rungs)}
    return tuple(sorted(findings, key=lambda finding: place.get(finding.id, len(place))))


def _only_rank(records: Records, job: Job) -> RankRecord | None:
    """The record of a job of which only one rank is here: it says what ``diagnose`` says."""
    if int(job.facts.usable.sum()) != 1:
        return None
    usable = int(np.flatnonzero(job.facts.usable)[0])
    return next(r for at, r in enumerate(records.records()) if at == usable)


def _own_findings(record: RankRecord, job: Job) -> tuple[JobFindingItem, ...]:
    return tuple(
        JobFindingItem(
            **shared(found.item) | {"rows": ()},
            saving_ns=found.saving_ns,
            ranks=(job.facts.ranks[int(np.flatnonzero(job.facts.usable)[0])].rank,),
            on_ranks=1,
            shown_by=record.path,
        )
        for found in record.found
    )


def _steps_of(record: RankRecord, steps: JobSteps) -> JobSteps:
    """Gains count from the step that the rank's own report counts from."""
    own = record.fix_ladder
    if own is None:
        return steps
    typical_ns = own.recorded_base_ns or steps.typical_ns
    return msgspec.structs.replace(
        steps, unprofiled_ns_predicted=own.base_ns, typical_ns=typical_ns
    )


_IN_TURN = "; the ranks do so in turn, and each step waits for one of them"


def _item(job: Job, found: JobFinding, item: Finding, path: str | None) -> JobFindingItem:
    what = f"ranks of {int(job.facts.usable.sum())} that show it"
    seen = [Evidence(what=what, value=len(found.ranks), unit="count")] if path else []
    return JobFindingItem(
        **shared(item)
        | {
            "summary": item.summary + (_IN_TURN if found.in_turn else ""),
            "fix": item.fix.removesuffix(ASK_ALL_RANKS),
            "evidence": (*seen, *item.evidence),
            "predicted_step_ns": found.predicted.step_ns,
            "predicted_range_ns": found.predicted.range_ns,
            # What holds for the one rank alone: rows of its trace, and its other findings.
            "rows": (),
            "given": (),
            "given_step_ns": None,
            "hidden_ns": None,
        },
        saving_ns=found.saving_ns,
        ranks=tuple(job.facts.ranks[r].rank for r in found.ranks[:MOST_RANKS_LISTED]),
        on_ranks=len(found.ranks) if path is not None else None,
        shown_by=path,
    )


def _unanswered(said: JobDiagnosis, answer: str, silent: Iterable[str]) -> tuple[Unanswered, ...]:
    asked = {o.id for o in said.outcomes}
    own = unanswered(said.outcomes, answer)
    return (*own, *(Unanswered(id=i, why=_ELSEWHERE) for i in silent if i not in asked))
