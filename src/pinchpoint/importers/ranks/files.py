"""Which files are the ranks of one job: from names, from the head of a file, or as given.

Frameworks name the recordings of their ranks in many ways: ``rank3_trace.json.gz`` in a folder an
iteration (torchtitan, torchtune), ``rank-3.json.gz`` (Megatron), ``id-TP-1-DP-0.trace.json.gz``
(SGLang), ``dp0_pp0_tp1_rank1.…`` (vLLM), ``host_pid.time.pt.trace.json`` without any rank
(``tensorboard_trace_handler``). What the name does not say, the head of the file may.
"""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from pinchpoint.errors import UsageError
from pinchpoint.frozen import dataclass
from pinchpoint.importers.files.remote import local_copy
from pinchpoint.importers.ranks.jobs import (
    UNIX_LEAST_NS,
    LeftOut,
    at_one_time,
    command_for,
    jobs_of,
    one_job,
)
from pinchpoint.importers.ranks.names import (
    RankFile,
    from_head,
    names_a_rank,
    natural,
    numbered,
    of_the_whole_job,
    rank_in_name,
    session_of,
    unless_all_alike,
)
from pinchpoint.importers.ranks.places import (
    listed,
    looks_like_a_recording,
    others_in,
    runs_below,
)
from pinchpoint.regex import regex

MOST_BESIDE = 20_000  # files that are looked at for the other ranks of one
# Servers record the capture of their graphs beside the rounds that replay them:
# capture_traces/graph_capture_rank_0.json.gz.
_CAPTURE = regex(r"(?<![a-z])(graph_capture|capture_(traces|graph))(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class RankFiles:
    """The recordings of one job, by rank and then by name, and what was left out."""

    files: tuple[RankFile, ...]
    left_out: tuple[LeftOut, ...] = ()


def find_rank_files(places: Sequence[str | Path]) -> RankFiles:
    """The recordings of one job in files, folders, globs, lists of paths (``.txt``) and URLs.

    Of several recordings of the same ranks (an iteration, a time) the one with most ranks is
    taken, of equals the newest. Raises UsageError where there is nothing, where there are several
    jobs, and where nothing says that the recordings of a folder are ranks of one.
    """
    found, captures = _found(places)
    named = ", ".join(map(str, places[:2])) + (" and others" if len(places) > 2 else "")
    if not found:
        raise UsageError(
            f"{named or 'nothing'}: no recordings",
            hint="name a folder or files: pinchpoint ranks DIR",
        )
    job = one_job(found, named, as_given={str(p) for p in places} >= {f.path for f in found})
    files = sorted(job.files, key=lambda f: (f.rank is None, f.rank or 0, natural(f.path)))
    return RankFiles(tuple(files), (*job.repeated, *captures))


def _found(
    places: Sequence[str | Path], runs: Sequence[Path] = ()
) -> tuple[list[RankFile], list[LeftOut]]:
    """Recordings with their ranks, but those of runs; apart those of graphs being captured, beside
    other ones."""
    paths = [path for path in listed([str(p) for p in places]) if not _inside(path, runs)]
    captures = [path for path in paths if _CAPTURE.search(path)]
    if len(captures) == len(paths):
        captures = []
    others = [rank_in_name(path) for path in paths if path not in captures]
    found = numbered(of_the_whole_job([from_head(file) for file in unless_all_alike(others)]))
    why = "graphs being captured, before the work itself"
    return found, [LeftOut(path, why) for path in captures]


def groups_in(folder: Path) -> list[list[str]]:
    """All that can be read below a folder: run folders whole, the ranks of each job together,
    others one by one."""
    runs = runs_below(folder)
    found, captures = _found([folder], runs)
    groups = [[str(run)] for run in runs] + [[capture.path] for capture in captures]
    groups += [[f.path] for f in found if f.rank is None]
    for job in jobs_of(found):
        paths = [f.path for f in job.files]
        if len(job.ranks) > 1:
            groups.append(paths)
        else:
            groups += [[path] for path in (*paths, *(item.path for item in job.repeated))]
    groups += [[str(path)] for path in others_in(folder) if not _inside(str(path), runs)]
    return sorted(groups, key=lambda group: natural(group[0]))


def _inside(path: str, runs: Sequence[Path]) -> bool:
    return any(Path(path).is_relative_to(run) for run in runs)


def several_ranks(folder: Path) -> bool:
    """Whether a folder holds the recordings of more than one rank of one job."""
    if not folder.is_dir():
        return False
    try:
        return len(find_rank_files([folder]).files) > 1
    except UsageError:  # no recordings, or of several jobs
        return False


def check_one_job(folder: Path) -> None:
    """Raise UsageError where a folder holds recordings that are not the ranks of one job."""
    if folder.is_dir() and any(True for _ in listed([str(folder)])):
        find_rank_files([folder])


def ranks_beside(path: Path) -> list[str]:
    """A recording and those beside it whose names differ in what names the rank only.

    Empty where there is too much beside it to look at.
    """
    root = path.parent.parent if names_a_rank(path.parent.name) else path.parent
    mine = session_of(str(path))
    deep = "*/*" if root != path.parent else "*"
    beside = []
    for seen, other in enumerate(root.glob(deep)):
        if seen == MOST_BESIDE:
            return []
        if looks_like_a_recording(other.name) and session_of(str(other)) == mine:
            beside.append(str(other))
    return sorted(beside)


def command_for_all_ranks(path: Path) -> str | None:
    """What to type to analyse a recording with those of the other ranks beside it.

    None where there are none, or too many to tell apart.
    """
    if path.is_dir():
        return f"pinchpoint ranks {shlex.quote(str(path))}" if several_ranks(path) else None
    beside = ranks_beside(path)
    found = [from_head(rank_in_name(p)) for p in beside]
    files = numbered(of_the_whole_job(found))
    for job in jobs_of(files):
        if len(job.files) > 1 and str(path) in {f.path for f in job.files}:
            return command_for(job)
    return None


__all__ = [
    "UNIX_LEAST_NS",
    "LeftOut",
    "RankFile",
    "RankFiles",
    "at_one_time",
    "check_one_job",
    "command_for_all_ranks",
    "find_rank_files",
    "groups_in",
    "local_copy",
    "rank_in_name",
    "several_ranks",
]
