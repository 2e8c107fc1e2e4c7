"""Many runs in one answer: which programs, what changed for good, which causes cost most."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from pinchpoint.compare.over_time import Shift, shifts
from pinchpoint.errors import PinchpointError
from pinchpoint.json_text import encoded
from pinchpoint.report.documents.fleet import (
    FleetCause,
    FleetChange,
    FleetDocument,
    FleetProgram,
)
from pinchpoint.report.plain import plain
from pinchpoint.serve.index import Index, current
from pinchpoint.serve.jobs import JobFacts, job_facts
from pinchpoint.serve.listing import ListedRecording
from pinchpoint.serve.run_places import RunPlace, documents_of, whole
from pinchpoint.serve.summary import Summary

if TYPE_CHECKING:
    from pinchpoint.importers.ranks.files import RankFile

By = Literal["program", "script"]
Progress = Callable[[int, int], None]  # runs that are done, runs in all

# Steps vary, so the place of a change is known to a few runs: within 3 in 9 of 10 changes of 10 %
# (benchmarks/fleet.py).
UNSURE_RUNS = 3
MOST_UNREADABLE = 10  # that are said one by one
AT_ONCE = 16  # documents that are fetched: an object store takes 50 ms for each, a disk 0.1
SAVE_EVERY = 1000  # rows: what is interrupted goes on from there


@dataclass(frozen=True)
class Job:
    """A run with what its recordings say, if they were read."""

    facts: JobFacts
    summary: Summary | None

    @property
    def rank_hours(self) -> float:
        """Hours of all its ranks together; 0 where it is not known how long it took."""
        return (self.facts.hours or 0.0) * self.facts.ranks

    @property
    def failed(self) -> bool:
        """Whether it ended with an error."""
        return bool(self.facts.exit_code)


def jobs_of(
    runs: Sequence[RunPlace], index: Index, progress: Progress | None = None
) -> tuple[Job, ...]:
    """All runs, oldest first. Only those that the index does not know as they are are read."""
    known, summaries = index.jobs(), index.all()
    fresh = {
        run.name: known[run.name][1]
        for run in runs
        if known.get(run.name, (None,))[0] == run.state and known[run.name][1].status != "running"
    }
    stale = [run for run in runs if run.name not in fresh]
    for at in range(0, len(stale), SAVE_EVERY):
        some = stale[at : at + SAVE_EVERY]
        with ThreadPoolExecutor(AT_ONCE) as by:
            facts = list(by.map(_facts, some))
        index.put_jobs([(run.state, row) for run, row in zip(some, facts, strict=True)])
        fresh |= {row.name: row for row in facts}
        if progress is not None:
            progress(at + len(some), len(stale))
    index.put_jobs((), set(known) - fresh.keys())
    jobs = [Job(fresh[run.name], current(_recording(run), summaries)) for run in runs]
    return tuple(sorted(jobs, key=lambda job: (job.facts.started_unix_ns or 0, job.facts.name)))


def _facts(run: RunPlace) -> JobFacts:
    try:
        with documents_of(run) as folder:
            return job_facts(folder, run.name)
    except PinchpointError as error:
        return JobFacts(name=run.name, problem=error.message)


def _recording(run: RunPlace) -> ListedRecording:
    return ListedRecording(run.name, "run", run.state, None)


def diagnose_runs(
    runs: Sequence[RunPlace],
    index: Index,
    most: int,
    progress: Progress | None = None,
) -> int:
    """Read the recordings of the newest runs that the index does not know; how many were read."""
    from pinchpoint.importers.ranks.files import RankFile
    from pinchpoint.jobs.engines import in_processes, workers_for

    known = index.all()
    waiting = [run for run in runs if current(_recording(run), known) is None][:most]
    by_name = {run.name: run for run in waiting}
    files = [RankFile(_as_task(run)) for run in waiting]
    workers = workers_for([RankFile(run.place) for run in waiting[:1]])
    for done, answer in enumerate(in_processes(files, workers, _read, _lost), 1):
        name, summary = msgspec.json.decode(answer, type=tuple[bytes, Summary])
        index.put(_recording(by_name[os.fsdecode(name)]), summary)
        if progress is not None:
            progress(done, len(waiting))
    return len(waiting)


def _as_task(run: RunPlace) -> str:
    """A place as text that has every name as it is: in ASCII, lone surrogates escaped."""
    return json.dumps(asdict(run))


def _read(task: "RankFile") -> bytes:
    """In a process of its own: the summary of one run."""
    from pinchpoint.serve.reader import summary_of

    run = msgspec.convert(json.loads(task.path), RunPlace)
    try:
        with whole(run) as folder:
            summary = summary_of(folder.resolve(), "")
    except PinchpointError as error:
        summary = Summary(problem=error.message)
    return encoded((os.fsencode(run.name), summary))


def _lost(task: "RankFile", why: str) -> bytes:
    """The same of a run that processes died of."""
    run = msgspec.convert(json.loads(task.path), RunPlace)
    return encoded((os.fsencode(run.name), Summary(problem=plain(why))))


# ------------------------------------------------------------------------------------------------
# From the runs to the document.


def fleet_document(place: str, jobs: Sequence[Job], by: By = "program") -> FleetDocument:
    """The answer about all runs; ``by`` says which runs are of one program."""
    known = [job for job in jobs if not job.facts.problem]
    groups = _groups(known, by)
    times = [job.facts.started_unix_ns for job in known if job.facts.started_unix_ns is not None]
    changes = [change for key, group in groups.items() for change in _changes(key, group)]
    failed = [job for job in known if job.failed]
    problems = [f"{job.facts.name}: {job.facts.problem}" for job in jobs if job.facts.problem]
    programs = [_program(key, group) for key, group in groups.items()]
    return FleetDocument(
        place=place,
        runs=len(jobs),
        running=sum(job.facts.status == "running" for job in known),
        failed=len(failed),
        unreadable=tuple(problems[:MOST_UNREADABLE]),
        not_diagnosed=sum(job.summary is None and job.facts.recordings > 0 for job in known),
        first_unix_ns=min(times, default=None),
        last_unix_ns=max(times, default=None),
        rank_hours=sum(job.rank_hours for job in known),
        failed_rank_hours=sum(job.rank_hours for job in failed),
        waiting_rank_hours=sum(job.rank_hours * (job.facts.wait_ratio or 0.0) for job in known),
        programs=tuple(sorted(programs, key=lambda p: (-p.rank_hours, p.program))),
        changes=tuple(sorted(changes, key=lambda c: (-c.rank_hours, -c.ratio))),
        causes=_causes(known),
    )


Key = tuple[str, str, int]


def _groups(jobs: Sequence[Job], by: By) -> dict[Key, list[Job]]:
    """Runs whose steps may be compared: one program, kind of device and number of ranks."""
    groups: dict[Key, list[Job]] = {}
    for job in jobs:
        facts = job.facts
        name = facts.program if by == "program" else facts.script
        groups.setdefault((name, facts.device, facts.ranks), []).append(job)
    return groups


def _program(key: Key, jobs: Sequence[Job]) -> FleetProgram:
    newest = jobs[-1].facts
    return FleetProgram(
        program=key[0],
        device=key[1],
        ranks=key[2],
        runs=len(jobs),
        failed=sum(job.failed for job in jobs),
        rank_hours=sum(job.rank_hours for job in jobs),
        newest=newest.name,
        step_ms=newest.step_ms,
        p99_ms=newest.p99_ms,
        wait_ratio=newest.wait_ratio,
    )


def _changes(key: Key, jobs: Sequence[Job]) -> Iterator[FleetChange]:
    timed = [job for job in jobs if job.facts.step_ms]
    values = np.array([job.facts.step_ms for job in timed], np.float64)
    found = shifts(values)
    edges = [0, *(shift.at for shift in found), len(timed)]
    for position, shift in enumerate(found):
        before, after = (timed[edges[position + i] : edges[position + i + 1]] for i in (0, 1))
        yield _change(key, before, after, shift)


def _change(key: Key, before: Sequence[Job], after: Sequence[Job], shift: Shift) -> FleetChange:
    last = before[max(len(before) - 1 - UNSURE_RUNS, 0)].facts
    first = after[min(UNSURE_RUNS, len(after) - 1)].facts
    found = [_findings(side) for side in (before, after)]
    hosts = [{job.facts.host for job in side if job.facts.host} for side in (before, after)]
    hours = sum(job.rank_hours for job in after)
    return FleetChange(
        program=key[0],
        device=key[1],
        ranks=key[2],
        since=after[0].facts.name,
        since_unix_ns=after[0].facts.started_unix_ns,
        runs_before=len(before),
        runs_after=len(after),
        before_ms=shift.before,
        after_ms=shift.after,
        ratio=shift.ratio,
        commits=(last.commit, first.commit),
        torch=(last.torch, first.torch),
        same_hosts=bool(hosts[0] & hosts[1]) if all(hosts) else None,
        waits_more=_waits_more(before, after, shift),
        new_findings=_only(found[1], found[0]),
        gone_findings=_only(found[0], found[1]),
        rank_hours=hours * (1 - shift.before / shift.after),
    )


def _findings(jobs: Sequence[Job]) -> set[str] | None:
    """Ids that the runs have; None where none of them was diagnosed."""
    known = [job.summary for job in jobs if job.summary and not job.summary.problem]
    return {id_ for summary in known for id_ in summary.findings} if known else None


def _only(of: set[str] | None, other: set[str] | None) -> tuple[str, ...]:
    return () if of is None or other is None else tuple(sorted(of - other))


def _waits_more(before: Sequence[Job], after: Sequence[Job], shift: Shift) -> bool:
    """Whether waiting for batches explains half of what a step became longer by."""
    sides = [
        [j.facts.wait_ratio for j in s if j.facts.wait_ratio is not None] for s in (before, after)
    ]
    if not sides[0] or not sides[1]:
        return False
    waits = [
        float(np.median(s)) * ms for s, ms in zip(sides, (shift.before, shift.after), strict=True)
    ]
    return waits[1] - waits[0] > (shift.after - shift.before) / 2 > 0


def _causes(jobs: Sequence[Job]) -> tuple[FleetCause, ...]:
    found: dict[str, list[tuple[Job, float]]] = {}
    for job in jobs:
        if job.summary is None:
            continue
        today = job.summary.step_ns
        won = {rung.id: (rung.base_ns or today or 0) - rung.step_ns for rung in job.summary.rungs}
        for id_ in job.summary.findings:
            ratio = won[id_] / today if today and id_ in won else 0.0
            found.setdefault(id_, []).append((job, max(ratio, 0.0) * job.rank_hours))
    causes = [
        FleetCause(
            id=id_,
            runs=len(same),
            programs=len({job.facts.program for job, _ in same}),
            rank_hours=sum(job.rank_hours for job, _ in same),
            saves_rank_hours=sum(saved for _, saved in same),
            example=max(same, key=lambda pair: pair[1])[0].facts.name,
        )
        for id_, same in found.items()
    ]
    # Equal ones stay in the order in which their runs have them, the first to mend first.
    return tuple(sorted(causes, key=lambda c: (-c.saves_rank_hours, -c.runs)))


# ------------------------------------------------------------------------------------------------
# For SQL: a row a run, and a row a finding of a run.


def tables(jobs: Sequence[Job]) -> dict[str, dict[str, Any]]:
    """Columns of the tables ``runs`` and ``findings``, described in docs/reference/fleet.md."""
    runs: dict[str, list[Any]] = {name: [] for name in (*JobFacts.__struct_fields__, "rank_hours")}
    findings: dict[str, list[Any]] = {n: [] for n in ("name", "id", "step_ns", "fixed_step_ns")}
    for job in jobs:
        for name in JobFacts.__struct_fields__:
            value = getattr(job.facts, name)
            runs[name].append("; ".join(value) if isinstance(value, tuple) else value)
        runs["rank_hours"].append(job.rank_hours)
        fixed = {rung.id: rung.step_ns for rung in job.summary.rungs} if job.summary else {}
        for id_ in job.summary.findings if job.summary else ():
            row = (
                job.facts.name,
                id_,
                job.summary.step_ns if job.summary else None,
                fixed.get(id_),
            )
            for column, value in zip(findings.values(), row, strict=True):
                column.append(value)
    return {"runs": runs, "findings": findings}


def root_of(place: str) -> Path | str:
    """What the index of a place is kept under."""
    return place if "://" in place else Path(place)
