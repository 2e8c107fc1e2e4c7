"""Which recordings belong to one job, where a folder holds more than that.

Recordings of one program have names that differ in numbers only. Programs whose ranks are others,
in worlds of one size, recorded at about the same time, are nodes of one job. Of one program's
recordings of the same ranks (an iteration, a time) one is taken. Two jobs are never mixed, and none
of them is preferred.
"""

import glob
import shlex
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from pinchpoint.errors import UsageError
from pinchpoint.frozen import dataclass
from pinchpoint.importers.ranks.names import (
    RankFile,
    name_of,
    natural,
    newest,
    pattern_of,
    process_of,
    program_of,
    read_head_of,
    session_of,
)

# Clocks of one cluster are kept within 5 minutes (Kerberos refuses more), and the ranks of a job
# record the same steps.
MOST_APART_NS = 600 * 10**9
UNIX_LEAST_NS = 10**18  # September 2001: below it, a clock counts from somewhere else
MOST_NAMED = 8  # files, in a command to type


@dataclass(frozen=True)
class LeftOut:
    """A file that is not part of the job, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class Job:
    """The recordings that belong together, and those of the same ranks that others stand for."""

    files: tuple[RankFile, ...]
    repeated: tuple[LeftOut, ...]
    begin_ns: int | None
    world_size: int | None

    @property
    def ranks(self) -> set[int]:
        """Those that are known."""
        return {f.rank for f in self.files if f.rank is not None}


def one_job(files: list[RankFile], where: str, *, as_given: bool) -> Job:
    """The one job of the files; what does not belong to it is left out.

    Raises UsageError where there are several jobs, or nothing that makes ranks of the files.
    ``as_given``: every file was named, so files without a rank are taken to be ranks.
    """
    if all(f.rank is None for f in files):
        return _nameless(files, where, as_given=as_given)
    jobs = jobs_of(files)
    several = [job for job in jobs if len(job.ranks) > 1]
    if len(several) > 1 or (not several and len(jobs) > 1):
        raise _several(jobs, several, where)
    job = several[0] if several else jobs[0]
    mine = program_of(job.files[0].path)
    like: list[RankFile] = []
    unlike: list[RankFile] = []
    for file in files:
        if file.rank is None:  # its content may still say it
            (like if program_of(file.path) == mine else unlike).append(file)
    strangers = [f for other in jobs if other is not job for f in other.files]
    odd = [LeftOut(f.path, "neither its name nor its head says a rank") for f in unlike]
    why = f"not of the job of {name_of(job.files[0].path)}"
    others = [item for other in jobs if other is not job for item in other.repeated]
    left_out = (*job.repeated, *others, *(LeftOut(f.path, why) for f in strangers), *odd)
    return replace(job, files=(*job.files, *like), repeated=left_out)


def jobs_of(files: Iterable[RankFile]) -> list[Job]:
    """Jobs among files whose rank is known, those with most ranks first."""
    programs: dict[str, list[RankFile]] = defaultdict(list)
    for file in files:
        if file.rank is not None:
            programs[program_of(file.path)].append(file)
    found = [_of_program(members) for members in programs.values()]
    found.sort(key=lambda j: (-len(j.ranks), natural(j.files[0].path)))
    jobs: list[tuple[Job, set[int], list[Job]]] = []  # the first program, all ranks, all programs
    for fresh in found:
        mine = fresh.ranks
        for first, ranks, programs_of in jobs:
            if not ranks & mine and _together(first, fresh):
                ranks |= mine
                programs_of.append(fresh)
                break
        else:
            jobs.append((fresh, mine, [fresh]))
    whole = [_united(first, programs_of) for first, _, programs_of in jobs]
    return sorted(whole, key=lambda j: -len(j.files))


def _united(first: Job, programs: list[Job]) -> Job:
    files = tuple(f for job in programs for f in job.files)
    repeated = tuple(item for job in programs for item in job.repeated)
    return replace(first, files=files, repeated=repeated)


def command_for(job: Job) -> str | None:
    """The command that analyses exactly these recordings; None where it would be too long."""
    paths = sorted((f.path for f in job.files), key=natural)
    pattern = pattern_of(paths)
    if pattern is not None and sorted(glob.glob(pattern)) == sorted(paths):  # noqa: PTH207
        return f"pinchpoint ranks {shlex.quote(pattern)}"
    if len(paths) <= MOST_NAMED:
        return f"pinchpoint ranks {shlex.join(paths)}"
    return None


def _nameless(files: list[RankFile], where: str, *, as_given: bool) -> Job:
    """Files of which nothing says a rank: alike but for numbers, or given as ranks."""
    kept, repeated = _newest_of_each_process(files)
    if as_given or len({program_of(f.path) for f in kept}) == 1:
        return Job(tuple(kept), tuple(repeated), None, None)
    raise UsageError(
        f"{where}: {len(files)} recordings, and nothing says that they are ranks of one job",
        hint=f"one of them alone: pinchpoint diagnose {shlex.quote(files[0].path)}",
    )


def _newest_of_each_process(files: list[RankFile]) -> tuple[list[RankFile], list[LeftOut]]:
    """``host_pid.time.pt.trace.json``: one process writes a file each time that it records."""
    latest: dict[str, RankFile] = {}
    for file in files:
        key = process_of(file.path) or file.path
        known = latest.get(key)
        if known is None or newest(file.path) > newest(known.path):
            latest[key] = file
    kept = list(latest.values())
    if len(kept) == 1 and len(files) > 1 and process_of(files[0].path) is None:
        return files, []
    taken = {f.path for f in kept}
    why = "an earlier recording of the same process"
    return kept, [LeftOut(f.path, why) for f in files if f.path not in taken]


def _several(jobs: list[Job], several: list[Job], where: str) -> UsageError:
    what = f"{len(several)} jobs" if several else f"single ranks of {len(jobs)} jobs"
    command = command_for(several[0]) if several else None
    hint = f"name the files of one of them: {command or 'pinchpoint ranks FILE FILE'}"
    if not several:
        hint = "bring the recordings of one job's ranks together: pinchpoint ranks FOLDER"
    return UsageError(f"{where}: recordings of {what}", hint=hint)


def _of_program(files: list[RankFile]) -> Job:
    """One recording of one program, where folders hold several of the same ranks."""
    sessions: dict[str, list[RankFile]] = defaultdict(list)
    for file in files:
        sessions[session_of(file.path)].append(file)
    ranks = {key: {f.rank for f in members} - {None} for key, members in sessions.items()}
    best = max(sessions, key=lambda key: (len(ranks[key]), natural(key)))
    kept, left_out = list(sessions[best]), []
    taken = set(ranks[best])
    like = f"taken: {name_of(sessions[best][0].path)} and those like it"
    for key in sorted(sessions, key=natural):
        if key == best:
            continue
        if ranks[key] & taken:
            why = f"another recording of the same ranks; {like}"
            left_out += [LeftOut(f.path, why) for f in sessions[key]]
        else:  # the ranks of another node
            kept += sessions[key]
            taken |= ranks[key]
    single, repeated = _one_a_rank(kept)
    head = read_head_of(single[0].path)
    worlds = {f.world_size for f in single} - {None} or {head.world_size}
    world = worlds.pop() if len(worlds) == 1 else None
    return Job(tuple(single), (*left_out, *repeated), head.begin_ns, world)


def _one_a_rank(files: Iterable[RankFile]) -> tuple[list[RankFile], list[LeftOut]]:
    by_rank: dict[int | None, list[RankFile]] = defaultdict(list)
    for file in files:
        by_rank[file.rank].append(file)
    kept, repeated = [], []
    for rank, same in by_rank.items():
        same.sort(key=lambda f: (newest(f.path), natural(f.path)))
        kept.append(same[-1])
        why = f"one more recording of rank {rank}; taken: {name_of(same[-1].path)}"
        repeated += [LeftOut(f.path, why) for f in same[:-1]]
    return kept, repeated


def _together(one: Job, other: Job) -> bool:
    """Whether two programs of different ranks can be nodes of one job."""
    if None not in (one.world_size, other.world_size) and one.world_size != other.world_size:
        return False
    if one.begin_ns is None or other.begin_ns is None:
        return True
    return at_one_time(one.begin_ns, other.begin_ns)


def at_one_time(one_ns: int, other_ns: int) -> bool:
    """Whether two recordings may have begun together, as far as their clocks can tell.

    Times since a machine's boot are not comparable with each other, and one job has one format.
    """
    unix = [ns >= UNIX_LEAST_NS for ns in (one_ns, other_ns)]
    return abs(one_ns - other_ns) <= MOST_APART_NS if all(unix) else not any(unix)
