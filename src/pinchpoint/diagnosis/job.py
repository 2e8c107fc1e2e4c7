"""The causes of a job's lost time: from all ranks together, and from what each rank's rules found.

What helps one rank helps the job only if the others wait for that rank, so every finding is put
through the replay of all ranks. Findings about communication itself are taken at what they give
the rank that waits least: there it is no waiting.
"""

from collections.abc import Sequence
from dataclasses import field, replace
from functools import partial

import numpy as np

from pinchpoint.analysis.ranks.job import Job
from pinchpoint.analysis.ranks.late_causes import WORK_SUBJECTS
from pinchpoint.analysis.ranks.longest_own import longest_gain_ns
from pinchpoint.analysis.ranks.what_if import JobReplay, Own, as_recorded
from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.engine import SURELY_MATERIAL_RATIO
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.rank_finding import (
    JobFinding,
    RankFinding,
    in_turns_ratio,
    with_collections,
)
from pinchpoint.diagnosis.registry import answer, rules
from pinchpoint.diagnosis.rule import MATERIAL_STEP_RATIO, About, Outcome
from pinchpoint.frozen import dataclass

MOST_RATIO = 0.5  # of the ranks: a cause of communication shows on most of them
NEARLY_ALL_RATIO = 0.75  # where only ranks that wait for others show it, it is no transfer
LEAST_STANDING_RATIO = 0.1  # of the step, as the rule has it that finds it on one rank
EXPLAINED_RATIO = 0.5  # of what late ranks cost: most of it
_LATE = "straggler-rank"
_MANY = "small-collectives"
_SYNCHRONISING = "synchronising"  # the folder of rules about waits of the host for its device
_LATENCY = GapKind.START_LATENCY.id  # between operations that wait for no host
LESS_RATIO, MORE_RATIO = 0.25, 0.15  # range of a predicted gain, as everywhere


@dataclass(frozen=True)
class JobDiagnosis:
    """Best finding first; ``outcomes`` are the answers of the rules that look at all ranks."""

    found: tuple[JobFinding, ...]
    outcomes: tuple[Outcome, ...]
    base_ns: int


@dataclass
class _Taken:
    """What the findings that are kept already take away."""

    own: Own
    communication_ns: int = 0
    kept: list[JobFinding] = field(default_factory=list)


def diagnose_job(job: Job, per_rank: Sequence[RankFinding] = ()) -> JobDiagnosis:
    """All causes that materially hold up the job."""
    outcomes = tuple(
        answer(known, partial(known.check_job, job))
        for known in rules().values()
        if known.check_job is not None
    )
    base = job.base_ns
    answered = {o.id for o in outcomes if o.answer == "found" or o.nothing_found}
    bound = job.replay.least_ns if job.replay is not None else 0
    ratio = job.said_ratio
    candidates = [_of_job(o.id, f, base, bound, ratio) for o in outcomes for f in o.findings]
    candidates = _without_parents(candidates)
    in_order = any(c.finding is not None and c.finding.leaves_ns_per_step for c in candidates)
    of_ranks = [
        _without_waits_for_others(job, f)
        for f in _outside_far_steps(per_rank)
        if f.id not in answered
    ]
    candidates += _without_larger_children(_of_ranks(job, of_ranks, base))
    candidates = with_collections(candidates, base)
    candidates = [c for c in candidates if not (in_order and _is_waiting(c))]
    candidates = _told_once(_without_explained_turns(job, candidates), base)
    candidates.sort(key=lambda c: (-c.saving_ns, c.id))
    return JobDiagnosis(tuple(_kept(job, candidates, base)), outcomes, base)


def _of_job(id_: str, finding: Found, base: int, bound: int, ratio: float) -> JobFinding:
    """No step that the job may have is shorter than ``bound``, the work of its fastest rank.

    ``ratio``: of the step that is said to the recorded one, of which the finding speaks. A finding
    that changes in which order ranks wait for each other knows itself what it leaves.
    """
    if finding.leaves_ns_per_step is not None:
        bound = round(ratio * finding.leaves_ns_per_step)
    of_recorded = finding.saving_ns_per_step or (0, finding.cost_ns_per_step or 0)
    least, most = (round(ratio * ns) for ns in of_recorded)
    likely = finding.likely_saving_ns
    raw = base - ((least + most) // 2 if likely is None else round(ratio * likely))
    step, low, high = (max(after, bound, 0) for after in (raw, base - most, base - least))
    after = Prediction(step, (low, high), base, max(raw, 0), bound)
    return JobFinding(id_, after.saving_ns, after, finding)


def _without_parents(candidates: list[JobFinding]) -> list[JobFinding]:
    parents = {rules()[c.id].rule.parent for c in candidates}
    return [c for c in candidates if c.id not in parents]


def _without_larger_children(candidates: list[JobFinding]) -> list[JobFinding]:
    """Without more general causes that a special one explains, as each rank's own answer has it:
    waits on the host for other ranks are what collectives take."""
    won = {c.id: c.saving_ns for c in candidates}
    explained = {
        parent: max((ns for i, ns in won.items() if rules()[i].rule.parent == parent), default=0)
        for parent in {rules()[i].rule.parent for i in won}
        if parent is not None
    }
    return [c for c in candidates if c.saving_ns > explained.get(c.id, 0)]


def _is_waiting(candidate: JobFinding) -> bool:
    """Whether it is about who waits for whom: where ranks only ever work one after the other, that
    is the order in which they do."""
    return candidate.id == _LATE or any(one.in_collectives for one in candidate.of_ranks)


def _as_recorded(job: Job) -> Own:
    """Own times as the replay of the job has them."""
    replay = job.replay or job.of_hosts
    return as_recorded(job.facts if replay is None else replay.facts)


def _of_ranks(job: Job, found: Sequence[RankFinding], base: int) -> list[JobFinding]:
    out = []
    for same in _causes(found):
        saving = _gain(job, _as_recorded(job), same, same[0].id)
        if saving > 0:
            known = all(one.saving_range_ns for one in same)
            least, most = (
                _gain(job, _as_recorded(job), [one.winning(at) for one in same], same[0].id)
                for at in (0, 1)
            )
            best_first = sorted(same, key=lambda f: (-f.saving_ns, f.rank))
            out.append(
                JobFinding(
                    same[0].id,
                    saving,
                    _of_range(base, saving, least, most) if known else _predicted(base, saving),
                    ranks=tuple(f.rank for f in same),
                    shown_by=best_first[0].rank,
                    of_ranks=tuple(best_first),
                )
            )
    return out


def _causes(found: Sequence[RankFinding]) -> list[list[RankFinding]]:
    """What is one cause: of one id, and where a rank names several places for it, of one place."""
    by_id: dict[str, list[RankFinding]] = {}
    for one in found:
        by_id.setdefault(one.id, []).append(one)
    out: list[list[RankFinding]] = []
    for same in by_id.values():
        several = len({one.rank for one in same}) < len(same)
        by_place: dict[str, list[RankFinding]] = {}
        for one in same:
            by_place.setdefault(one.place if several else "", []).append(one)
        out += by_place.values()
    return out


def _gain(job: Job, own: Own, same: Sequence[RankFinding], id_: str) -> int:
    """What the job wins if the cause goes away on every rank that shows it."""
    if _in_collectives(same, id_) and not _is_launching(job, same, id_):
        least = min(_without_waiting(job, f) for f in same)
        standing, usable = any(f.in_collectives for f in same), int(job.facts.usable.sum())
        ratio = NEARLY_ALL_RATIO if standing else MOST_RATIO
        if len({f.rank for f in same}) < ratio * usable:
            return 0
        if standing and least < LEAST_STANDING_RATIO * job.step_ns:
            return 0
        return round(job.said_ratio * least)
    if any(one.far_steps for one in same):
        return _in_far_steps(same)
    replay, turns = job.replay or job.of_hosts, in_turns_ratio(same)
    if replay is None:
        return round(turns * longest_gain_ns(job, own, _less(own, same)))
    alone = max(replay.ask(own) - replay.ask(_less(own, same)), 0)
    most = max(replay.ask(own) - replay.least_ns, alone)  # every rank as the fastest of each step
    return min(round(turns * alone), most)


def _in_far_steps(same: Sequence[RankFinding]) -> int:
    """What goes with far steps of the run, which all ranks take as long as the one that holds them
    up: of ranks that do it in the same steps the longest, of others the sum."""
    far = sorted((one for one in same if one.far_steps), key=lambda one: -one.saving_ns)
    counted, total = set[int](), 0
    for one in far:
        fresh = set(one.far_steps) - counted
        total += round(one.saving_ns * len(fresh) / len(one.far_steps))
        counted |= fresh
    return total


def _without_waiting(job: Job, found: RankFinding) -> int:
    """What a finding about collectives gives its rank. Where the rank stands in them because others
    are late, only the transfer can go, and the rank's own work for it: waiting ends with no change
    to the collectives."""
    between = job.between
    waits = float(np.mean(between.waiting_ns[found.rank])) if between.waiting_ns.size else 0.0
    moves = between.transfer_ns[found.rank] + between.untold_ns[found.rank]
    transfer = float(np.mean(moves)) if moves.size else 0.0
    only_transfer = waits > transfer or found.in_collectives  # or a rule that tells them apart
    most = round(transfer) + found.beside_ns
    return min(found.saving_ns, most) if only_transfer else found.saving_ns


def _outside_far_steps(found: Sequence[RankFinding]) -> list[RankFinding]:
    """Without reads of values where a rank does what makes its far steps long, and without longer
    steps of the recording, where the run knows what makes its own: that is one cause."""
    far = {(one.rank, one.place) for one in found if one.far_steps}
    if not far:
        return list(found)

    def is_told(one: RankFinding) -> bool:
        there = (one.rank, one.place) in far and _is_synchronising(one)
        return not one.far_steps and (there or rules()[one.id].rule.periodic)

    return [one for one in found if one.id not in rules() or not is_told(one)]


def _is_synchronising(found: RankFinding) -> bool:
    known = rules().get(found.id)
    return known is not None and known.check.__module__.split(".")[-2] == _SYNCHRONISING


def _without_waits_for_others(job: Job, found: RankFinding) -> RankFinding:
    """Of a synchronisation that goes, a rank wins what its device was idle after it, and not what
    the device itself stood in a collective meanwhile: that ends when the other rank comes."""
    parts = [p.group == "idle" and p.id != _LATENCY for p in job.facts.parts]
    if not _is_synchronising(found) or job.facts.ranks[found.rank].device is None:
        return found
    most = round(job.said_ratio * float(job.facts.parts_ns[found.rank, parts].sum()))
    ends = found.saving_range_ns
    return replace(
        found,
        saving_ns=min(found.saving_ns, most),
        saving_range_ns=None if ends is None else (min(ends[0], most), min(ends[1], most)),
    )


def _without_explained_turns(job: Job, candidates: list[JobFinding]) -> list[JobFinding]:
    """Without recorded steps that waited for one rank now and then, where the run knows what that
    rank does in its far steps, and it explains most of them."""
    if job.late.stragglers or not job.late.incidents:
        return candidates
    rank = job.late.incidents[0].rank
    known_ns = sum(c.saving_ns for c in candidates if rank in c.ranks and c.in_far_steps)
    return [
        c
        for c in candidates
        if c.id != _LATE or c.finding is None or known_ns < EXPLAINED_RATIO * c.saving_ns
    ]


def _is_launching(job: Job, same: Sequence[RankFinding], id_: str) -> bool:
    """Whether it is the number of collectives that costs, and so the hosts that launch them for
    their devices: those are own time of each rank."""
    on_devices = all(job.facts.ranks[one.rank].device is not None for one in same)
    return id_ == _MANY and on_devices and job.replay is not None


def _in_collectives(same: Sequence[RankFinding], id_: str) -> bool:
    """Whether the cause is in the collectives: its gain is not the rank's own time."""
    known = rules().get(id_)
    about = known is not None and known.rule.about is About.COMMUNICATION
    return about or any(one.in_collectives for one in same)


def _less(own: Own, same: Sequence[RankFinding]) -> Own:
    device, host = own.ns.copy(), own.host_ns.copy()
    for one in same:
        for ns in (device, host):
            mine = ns[one.rank]
            # Far steps that were recorded become usual ones; there may be more or fewer than usual.
            usual = np.nanmedian(mine) if one.far_steps and not np.isnan(mine).all() else 0.0
            ns[one.rank] = np.minimum(mine, usual) if usual else np.maximum(mine - one.saving_ns, 0)
    return Own(device, own.like, host)


def _without_late_ranks(job: Job, replay: JobReplay) -> Own:
    """Own times after what a finding about late ranks promises: nobody pays for them twice."""
    late = np.array([one.rank for one in job.late_ranks])
    first = job.late_ranks[0].doing[:1]
    work = bool(first) and first[0].subject in WORK_SUBJECTS
    return replay.balanced(late) if work else replay.as_peers(late)


def _of_range(base: int, saving: int, least: int, most: int) -> Prediction:
    """Between what the ranks' own predictions give the job."""
    ends = (max(base - max(most, saving), 0), base - min(least, saving))
    return Prediction(max(base - saving, 0), ends, base)


def _predicted(base: int, saving: int) -> Prediction:
    low, high = base - (1 + MORE_RATIO) * saving, base - (1 - LESS_RATIO) * saving
    return Prediction(max(base - saving, 0), (max(round(low), 0), max(round(high), 0)), base)


def _kept(job: Job, candidates: list[JobFinding], base: int) -> list[JobFinding]:
    """Findings that still pay once those before them are fixed."""
    between = job.between.transfer_ns + job.between.untold_ns
    exposed = job.said_ratio * float(np.mean(between)) if between.size else 0.0
    taken = _Taken(_as_recorded(job))
    for candidate in candidates:
        saving = candidate.saving_ns
        about_transfer = _in_collectives(candidate.of_ranks, candidate.id)
        about_transfer &= not _is_launching(job, candidate.of_ranks, candidate.id)
        same = candidate.of_ranks
        if taken.kept and about_transfer:
            saving = round(saving * max(1 - taken.communication_ns / max(exposed, 1), 0))
        elif taken.kept and candidate.finding is None:
            saving = _gain(job, taken.own, same, candidate.id)
        sure = candidate.finding is not None or len(taken.kept) == 0
        limit = MATERIAL_STEP_RATIO if sure else SURELY_MATERIAL_RATIO
        if min(saving, candidate.saving_ns) < limit * base:  # what is said is what it wins alone
            continue
        if about_transfer:
            taken.communication_ns += saving
        elif candidate.finding is None:
            taken.own = _less(taken.own, same)
        elif job.replay is not None and job.late_ranks:
            taken.own = _without_late_ranks(job, job.replay)
        taken.kept.append(candidate)
    return taken.kept


def _told_once(candidates: list[JobFinding], base: int) -> list[JobFinding]:
    """A late rank and what a rule found at the same place of that rank alone are one cause: who is
    late is said, and what either of the two would give is its range."""
    out: list[JobFinding] = []
    for late in candidates:
        at = None if late.finding is None else late.finding.location
        place = "" if at is None else place_of(at.function, at.file)
        same = next((c for c in candidates if place and _only_there(c, place)), None)
        out.append(late if same is None else _of_both(late, same, base))
    places = {
        place_of(c.finding.location.function, c.finding.location.file)
        for c in candidates
        if c.finding is not None and c.finding.location is not None
    } - {""}
    return [c for c in out if not any(_only_there(c, place) for place in places)]


def _only_there(found: JobFinding, place: str) -> bool:
    return len(found.ranks) == 1 and [one.place for one in found.of_ranks] == [place]


def _of_both(late: JobFinding, same: JobFinding, base: int) -> JobFinding:
    saving = (late.saving_ns + same.saving_ns) // 2
    low = min(late.predicted.range_ns[0], same.predicted.range_ns[0])
    high = max(late.predicted.range_ns[1], same.predicted.range_ns[1])
    return replace(
        late, saving_ns=saving, predicted=Prediction(max(base - saving, 0), (low, high), base)
    )


def place_of(function: str | None, file: str | None) -> str:
    """The place of a ``RankFinding``; empty without a function."""
    return f"{function} {file or ''}" if function else ""
