"""What the name of a recording, or its head, says about its rank and its job."""

import glob
import re
from dataclasses import replace
from string import digits

from pinchpoint.frozen import dataclass
from pinchpoint.importers.ranks.places import head_text
from pinchpoint.regex import regex

# A rank has at most seven digits: a longer number names something else. Digits are ASCII.
_OURS = regex(r"(?:^|/)rank([0-9]{1,7})of([0-9]{1,7})\.")
_RANK = regex(r"(?<![a-z])rank[-_ =]?([0-9]{1,7})(?!\d)", re.IGNORECASE)
_WORKER = regex(r"(?<![a-z])(?:worker|process|proc)[-_ =]?([0-9]{1,7})(?!\d)", re.IGNORECASE)
_AXIS = regex(r"(?<![a-z])(dcp|etp|tp|dp|pp|ep|cp|sp)[-_]?([0-9]{1,7})(?![\da-z])", re.IGNORECASE)
_NUMBER = regex(r"(?<![\d.])([0-9]{1,6})(?![\d])")
_TIME = regex(r"(?<!\d)([0-9]{10,19})(?!\d)")  # seconds to nanoseconds since 1970
_HEAD_RANK = regex(r'\\?"rank\\?"\s*:\s*([0-9]{1,7})\b')
_HEAD_WORLD = regex(r'\\?"world_size\\?"\s*:\s*([0-9]{1,7})\b')
_HEAD_BASE_NS = regex(r'"baseTimeNanoseconds"\s*:\s*([0-9]{1,19})\b')
_HEAD_TS_US = regex(r'"ts"\s*:\s*"?([0-9]{1,19}(?:\.[0-9]+)?)')
_DISTRIBUTED = "distributedInfo"
_MOST_COMPARED = 16  # files of one rank
_PIECES = regex(r"[0-9]{1,4000}|[^0-9]+")  # longer numbers are none to Python either


@dataclass(frozen=True)
class RankFile:
    """The recording of one rank. ``rank`` is None where neither name nor head says it."""

    path: str  # local path or URL
    rank: int | None = None
    world_size: int | None = None
    label: str = ""  # as the name has it: "TP-1-DP-0", "rank 3"


@dataclass(frozen=True)
class Head:
    """What the first bytes of a recording say; None where they do not."""

    rank: int | None = None
    world_size: int | None = None
    begin_ns: int | None = None  # on whatever clock the recording is on


def rank_in_name(path: str) -> RankFile:
    """What the name of a file, or of the folders around it, says about its rank."""
    if ours := _OURS.search(path):
        return RankFile(path, int(ours[1]), int(ours[2]), f"rank {int(ours[1])}")
    name = name_of(path)
    axes = [(m[1].upper(), int(m[2])) for m in _AXIS.finditer(name)]
    label = "-".join(f"{axis}-{n}" for axis, n in axes)
    for pattern in (_RANK, _WORKER):
        in_name = pattern.findall(name) or pattern.findall(path)
        if in_name:
            rank = int(in_name[-1])
            return RankFile(path, rank, None, label or f"rank {rank}")
    return RankFile(path, None, None, label)


def unless_all_alike(files: list[RankFile]) -> list[RankFile]:
    """A folder ``rank3-experiment`` around everything says nothing about ranks."""
    named = [f for f in files if f.rank is not None]
    in_name = any(names_a_rank(name_of(f.path)) for f in files)
    if len(files) > 1 and not in_name and len({f.rank for f in named}) == 1:
        return [replace(f, rank=None) for f in files]
    return files


def names_a_rank(text: str) -> bool:
    """Whether a part of a path speaks of a rank."""
    return bool(_RANK.search(text) or _WORKER.search(text))


def read_head_of(path: str) -> Head:
    """What the head of a local file says; nothing of a remote one, which costs a request."""
    if "://" in path:
        return Head()
    head = head_text(path)
    at = head.find(_DISTRIBUTED)
    rank, world = (p.search(head, max(at, 0)) for p in (_HEAD_RANK, _HEAD_WORLD))
    base, first = _HEAD_BASE_NS.search(head), _HEAD_TS_US.search(head)
    return Head(
        rank=int(rank[1]) if rank and at >= 0 else None,
        world_size=int(world[1]) if world and at >= 0 else None,
        begin_ns=int(base[1] if base else 0) + int(float(first[1]) * 1000) if first else None,
    )


def from_head(file: RankFile) -> RankFile:
    """The file, with what its head says where its name does not."""
    if file.rank is not None:
        return file
    head = read_head_of(file.path)
    label = file.label or (f"rank {head.rank}" if head.rank is not None else "")
    return replace(file, rank=head.rank, world_size=head.world_size, label=label)


def of_the_whole_job(files: list[RankFile]) -> list[RankFile]:
    """Ranks by the heads, where names count the ranks of each node from 0.

    Names are believed unless the heads of files with one name's rank say otherwise.
    """
    same: dict[int, list[RankFile]] = {}
    for file in files:
        if file.rank is not None:
            same.setdefault(file.rank, []).append(file)
    most = max(same.values(), key=len, default=[])
    if len(most) < 2:
        return files
    said = {read_head_of(f.path).rank for f in most[:_MOST_COMPARED]} - {None}
    if said <= {most[0].rank}:
        return files
    return [_by_head(file) for file in files]


def _by_head(file: RankFile) -> RankFile:
    head = read_head_of(file.path)
    if head.rank is None:
        return file
    return replace(file, rank=head.rank, world_size=head.world_size, label=f"rank {head.rank}")


def numbered(files: list[RankFile]) -> list[RankFile]:
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
    names = [name_of(f.path) for f in files]
    shapes = {_NUMBER.sub("#", name) for name in names}
    numbers = [_NUMBER.findall(name) for name in names]
    if len(shapes) != 1:
        return {}
    columns = list(zip(*numbers, strict=True))
    varying = [c for c in columns if len(set(c)) > 1]
    if len(varying) != 1 or len(set(varying[0])) != len(files):
        return {}
    return {f.path: int(n) for f, n in zip(files, varying[0], strict=True)}


def session_of(path: str) -> str:
    """The folder of a file and its name up to the rank, without what only names the rank.

    Ranks of one recording share it, and recordings of other steps in other folders do not. A name
    that speaks of no rank keeps all its words.
    """
    *folders, name = path.split("/")
    folders = ["*" if names_a_rank(p) else p for p in folders]
    at = _RANK.search(name) or _WORKER.search(name)
    return "/".join((*folders, _without_numbers(name[: at.start()] if at else name)))


def program_of(path: str) -> str:
    """The same without any number: what recordings of one program at other steps share."""
    folder, _, name = session_of(path).rpartition("/")
    return f"{_without_numbers(folder)}/{name}"


def process_of(path: str) -> str | None:
    """A name up to the time that it carries: what wrote it; None where it carries none."""
    times = list(_TIME.finditer(name_of(path)))
    return path[: len(path) - len(name_of(path)) + times[-1].start()] if times else None


def pattern_of(paths: list[str]) -> str | None:
    """One glob for paths that are alike but for numbers; None where they are not."""
    parts = [_PIECES.findall(path) for path in paths]
    if len({tuple(None if p[0] in digits else p for p in path) for path in parts}) != 1:
        return None
    columns = list(zip(*parts, strict=True))
    return "".join("*" if len(set(column)) > 1 else glob.escape(column[0]) for column in columns)


def name_of(path: str) -> str:
    """The last part of a path or URL."""
    return path.rsplit("/", 1)[-1]


def newest(path: str) -> int:
    """The time in a name, whatever its unit: digits of one writer have one length."""
    times = _TIME.findall(name_of(path))
    return int(times[-1]) if times else 0


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts 2 before 10."""
    return tuple((0, int(p), "") if p[0] in digits else (1, 0, p) for p in _PIECES.findall(text))


def _without_numbers(text: str) -> str:
    return re.sub(r"[0-9]+", "#", text)
