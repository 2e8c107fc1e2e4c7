"""Which files are the ranks of one job: from names, from the head of a file, or as given.

Frameworks name the recordings of their ranks in many ways: ``rank3_trace.json.gz`` in a folder an
iteration (torchtitan, torchtune), ``rank-3.json.gz`` (Megatron), ``id-TP-1-DP-0.trace.json.gz``
(SGLang), ``dp0_pp0_tp1_rank1.…`` (vLLM), ``host_pid.time.pt.trace.json`` without any rank
(``tensorboard_trace_handler``). What the name does not say, the head of the file may.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pinchpoint.errors import UsageError
from pinchpoint.importers._places import head_text, listed, local_copy

_OURS = re.compile(r"(?:^|/)rank(\d+)of(\d+)\.")
_RANK = re.compile(r"(?<![a-z])rank[-_ =]?(\d+)(?!\d)", re.IGNORECASE)
_WORKER = re.compile(r"(?<![a-z])(?:worker|process|proc)[-_ =]?(\d+)(?!\d)", re.IGNORECASE)
_AXIS = re.compile(r"(?<![a-z])(dcp|etp|tp|dp|pp|ep|cp|sp)[-_]?(\d+)(?![\da-z])", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\d.])(\d{1,6})(?![\d])")
_TIME = re.compile(r"(?<!\d)(\d{10,19})(?!\d)")  # seconds to nanoseconds since 1970
_HEAD_RANK = re.compile(r'\\?"rank\\?"\s*:\s*(\d+)')
_HEAD_WORLD = re.compile(r'\\?"world_size\\?"\s*:\s*(\d+)')
_DISTRIBUTED = "distributedInfo"


@dataclass(frozen=True)
class RankFile:
    """The recording of one rank. ``rank`` is None where neither name nor head says it."""

    path: str  # local path or URL
    rank: int | None = None
    world_size: int | None = None
    label: str = ""  # as the name has it: "TP-1-DP-0", "rank 3"


@dataclass(frozen=True)
class LeftOut:
    """A file that is not part of the job, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class RankFiles:
    """The recordings of one job, by rank and then by name, and what was left out."""

    files: tuple[RankFile, ...]
    left_out: tuple[LeftOut, ...] = ()


def find_rank_files(places: Sequence[str | Path]) -> RankFiles:
    """The recordings in files, folders, globs, lists of paths (``.txt``) and URLs.

    Of several recordings of the same ranks (an iteration, a time) the one with most ranks is
    taken, of equals the newest. Raises UsageError where there is nothing.
    """
    found = _unless_all_alike([rank_in_name(path) for path in listed([str(p) for p in places])])
    found = _numbered([_from_head(file) for file in found])
    if not found:
        named = ", ".join(str(p) for p in places) or "nothing"
        raise UsageError(
            f"{named}: no recordings", hint="name a folder or files: pinchpoint ranks DIR"
        )
    chosen, others = _one_session(found)
    single, repeated = _one_a_rank(chosen)
    single.sort(key=lambda f: (f.rank is None, f.rank or 0, _natural(f.path)))
    return RankFiles(tuple(single), (*others, *repeated))


def several_ranks(folder: Path) -> bool:
    """Whether a folder holds the recordings of more than one rank."""
    if not folder.is_dir():
        return False
    try:
        return len(find_rank_files([folder]).files) > 1
    except UsageError:  # no recordings
        return False


def rank_in_name(path: str) -> RankFile:
    """What the name of a file, or of the folders around it, says about its rank."""
    if ours := _OURS.search(path):
        return RankFile(path, int(ours[1]), int(ours[2]), f"rank {int(ours[1])}")
    name = _name(path)
    axes = [(m[1].upper(), int(m[2])) for m in _AXIS.finditer(name)]
    label = "-".join(f"{axis}-{n}" for axis, n in axes)
    for pattern in (_RANK, _WORKER):
        in_name = pattern.findall(name) or pattern.findall(path)
        if in_name:
            rank = int(in_name[-1])
            return RankFile(path, rank, None, label or f"rank {rank}")
    return RankFile(path, None, None, label)


def _unless_all_alike(files: list[RankFile]) -> list[RankFile]:
    """A folder ``rank3-experiment`` around everything says nothing about ranks."""
    named = [f for f in files if f.rank is not None]
    in_name = any(_RANK.search(_name(f.path)) or _WORKER.search(_name(f.path)) for f in files)
    if len(files) > 1 and not in_name and len({f.rank for f in named}) == 1:
        return [replace(f, rank=None) for f in files]
    return files


def _from_head(file: RankFile) -> RankFile:
    if file.rank is not None or "://" in file.path:
        return file
    head = head_text(file.path)
    at = head.find(_DISTRIBUTED)
    if at < 0:
        return file
    rank, world = _HEAD_RANK.search(head, at), _HEAD_WORLD.search(head, at)
    return replace(
        file,
        rank=int(rank[1]) if rank else None,
        world_size=int(world[1]) if world else None,
        label=file.label or (f"rank {rank[1]}" if rank else ""),
    )


def _numbered(files: list[RankFile]) -> list[RankFile]:
    """Ranks from the one number that tells names apart, where nothing better says them."""
    open_ones = [f for f in files if f.rank is None]
    if len(open_ones) < 2 or len(open_ones) != len(files):
        return files
    rank_of = _single_axis(open_ones) or _single_number(open_ones)
    return [replace(f, rank=rank_of[f.path]) if f.path in rank_of else f for f in files]


def _single_axis(files: list[RankFile]) -> dict[str, int]:
    """One parallel axis that differs between files while all others stay."""
    axes = [dict(part.rsplit("-", 1) for part in re.findall(r"[A-Z]+-\d+", f.label)) for f in files]
    if not all(axes) or any(a.keys() != axes[0].keys() for a in axes):
        return {}
    varying = [axis for axis in axes[0] if len({a[axis] for a in axes}) > 1]
    if len(varying) != 1:
        return {}
    return {f.path: int(a[varying[0]]) for f, a in zip(files, axes, strict=True)}


def _single_number(files: list[RankFile]) -> dict[str, int]:
    """``trace_0.json``, ``trace_1.json``: names that are alike but for one small number."""
    names = [_name(f.path) for f in files]
    shapes = {_NUMBER.sub("#", name) for name in names}
    numbers = [_NUMBER.findall(name) for name in names]
    if len(shapes) != 1:
        return {}
    columns = list(zip(*numbers, strict=True))
    varying = [c for c in columns if len(set(c)) > 1]
    if len(varying) != 1 or len(set(varying[0])) != len(files):
        return {}
    return {f.path: int(n) for f, n in zip(files, varying[0], strict=True)}


def _one_session(files: list[RankFile]) -> tuple[list[RankFile], list[LeftOut]]:
    """The files of one recording, where folders hold several of the same ranks."""
    sessions: dict[str, list[RankFile]] = defaultdict(list)
    for file in files:
        sessions[_session(file.path)].append(file)
    ranks = {key: {f.rank for f in members} - {None} for key, members in sessions.items()}
    best = max(sessions, key=lambda key: (len(ranks[key]), _natural(key)))
    kept, others = list(sessions[best]), []
    taken = set(ranks[best])
    for key in sorted(sessions, key=_natural):
        if key == best:
            continue
        if ranks[key] & taken:
            others += [
                LeftOut(
                    f.path,
                    "another recording of the same ranks; taken: "
                    f"{_name(sessions[best][0].path)} and those like it",
                )
                for f in sessions[key]
            ]
        else:  # the ranks of another node
            kept += sessions[key]
            taken |= ranks[key]
    return kept, others


def _session(path: str) -> str:
    """The folder of a file and its name up to the rank, without what only names the rank."""
    parts = path.split("/")
    folders = ["*" if _RANK.search(p) or _WORKER.search(p) else p for p in parts[:-1]]
    at = _RANK.search(parts[-1]) or _WORKER.search(parts[-1])
    before = re.sub(r"\d+", "#", parts[-1][: at.start()]) if at else ""
    return "/".join((*folders, before))


def _one_a_rank(files: Iterable[RankFile]) -> tuple[list[RankFile], list[LeftOut]]:
    by_rank: dict[int, list[RankFile]] = defaultdict(list)
    kept, repeated = [], []
    for file in files:
        if file.rank is None:
            kept.append(file)
        else:
            by_rank[file.rank].append(file)
    for rank, same in by_rank.items():
        same.sort(key=lambda f: (_newest(f.path), _natural(f.path)))
        kept.append(same[-1])
        repeated += [
            LeftOut(f.path, f"one more recording of rank {rank}; taken: {_name(same[-1].path)}")
            for f in same[:-1]
        ]
    return kept, repeated


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _newest(path: str) -> int:
    """The time in a name, whatever its unit: digits of one writer have one length."""
    times = _TIME.findall(_name(path))
    return int(times[-1]) if times else 0


def _natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts 2 before 10."""
    parts = re.findall(r"\d+|\D+", text)
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts)


__all__ = [
    "LeftOut",
    "RankFile",
    "RankFiles",
    "find_rank_files",
    "local_copy",
    "rank_in_name",
    "several_ranks",
]
