"""Which of the lines that a commit changed became costly: looks at both sides, subtracted.

The share that a changed statement has of a step of B, less what the lines that it replaced had of a
step of A. Shares, as the lengths of both steps are known best from the pairs.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from math import sqrt

from pinchpoint.bench.ab.changed_code import ChangedCode
from pinchpoint.bench.run.lines import LinesSeen, Place
from pinchpoint.frozen import dataclass

Range = tuple[int, int]  # first and last line
Texts = Mapping[str, str]  # by file
# Of the standard error of a share by so many looks: by chance one difference in 700 is as large.
_SURE = 3.0
# Characters that two lines share, as difflib counts them: half of them is the same line, changed.
_ALIKE_RATIO = 0.5
_LEAST_RATIO = 0.01  # of a step: less is no cause of a change that a gate sees


@dataclass(frozen=True)
class CostlyLine:
    """The changed statement whose part of a step grew most."""

    code: ChangedCode
    line: int  # its first, as it is numbered now
    text: str
    a_ratio: float  # of a step of A, that the line had in whose place it stands
    b_ratio: float  # of a step of B
    looks: int  # at B


def ranges_of(lines: Sequence[int], text: str) -> tuple[Range, ...]:
    """The statements that these lines are in: whole ones, of a compound one its head."""
    wanted = set(lines)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(sorted(r for r in set(_statements(tree)) if wanted & set(range(r[0], r[1] + 1))))


def _statements(tree: ast.AST) -> Iterator[Range]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt):
            continue
        body = getattr(node, "body", None) or getattr(node, "cases", None)
        last = node.end_lineno or node.lineno
        if body:
            first = getattr(body[0], "lineno", None) or body[0].pattern.lineno
            last = max(node.lineno, first - 1)
        yield node.lineno, last


def asked(code: Sequence[ChangedCode], texts: Texts, *, now: bool) -> dict[str, tuple[Range, ...]]:
    """By file, the statements to look at in B (``now``) or in A."""
    lines: dict[str, list[int]] = {}
    for one in code:
        for hunk in one.hunks:
            lines.setdefault(one.file, []).extend(hunk.added if now else hunk.removed)
    found = {file: ranges_of(lines[file], texts.get(file, "")) for file in lines}
    return {file: ranges for file, ranges in found.items() if ranges}


@dataclass(frozen=True)
class Looked:
    """One side: what was asked for, and what was seen of it."""

    asked: Mapping[str, tuple[Range, ...]]
    seen: LinesSeen | None  # None: nothing was asked for, so that nothing is its part

    def shares(self, file: str, lines: Sequence[int]) -> dict[Range, float]:
        """Of the statements that these lines are in."""
        wanted, ranges = set(lines), self.asked.get(file, ())
        return {
            r: self._share((file, n))
            for n, r in enumerate(ranges)
            if wanted & set(range(r[0], r[1] + 1))
        }

    def _share(self, place: Place) -> float:
        return 0.0 if self.seen is None else self.seen.share.get(place, 0.0)


def costly_line(
    code: Sequence[ChangedCode], a: Looked, b: Looked, texts: tuple[Texts, Texts]
) -> CostlyLine | None:
    """None where no changed line has clearly more of a step than what it replaced, or where two
    have as much more. ``texts``: the files of A and of B."""
    if b.seen is None or not b.seen.looks:
        return None
    looks = min(side.seen.looks for side in (a, b) if side.seen is not None and side.seen.looks)
    found: list[tuple[float, CostlyLine]] = []
    whole = 0.0
    for one in code:
        for hunk in one.hunks:
            now, before = b.shares(one.file, hunk.added), a.shares(one.file, hunk.removed)
            net = sum(now.values()) - sum(before.values())
            whole += net
            old, new = (side.get(one.file, "") for side in texts)
            for place, was in _replaced(before, now, (old, new), looks).items():
                line = CostlyLine(one, place[0], _text(new, place), was, now[place], b.seen.looks)
                # What went from one line of a hunk to another of it is no growth.
                found.append((min(now[place] - was, net), line))
    found.sort(key=lambda pair: -pair[0])
    if not found:
        return None
    (growth, best), second = found[0], found[1][0] if found[1:] else 0.0
    sure = max(_LEAST_RATIO, _error_of_difference(best.b_ratio, best.a_ratio, looks))
    return best if min(growth, whole) >= sure and growth - second >= sure else None


def _replaced(
    before: Mapping[Range, float], now: Mapping[Range, float], texts: tuple[str, str], looks: int
) -> dict[Range, float]:
    """For each statement of B, what those of A that it took the place of had of a step.

    All of them, of a single one. One without which the others have what there was before is new:
    whatever the others became, they cost the same. Else the most similar one.
    """
    was = sum(before.values())
    if len(now) == 1:
        return dict.fromkeys(now, was)
    whole = sum(now.values())
    without = {place: abs(whole - share - was) for place, share in now.items()}
    new = min(now, key=lambda place: (without[place], -now[place]), default=None)
    if new is not None and without[new] <= _error_of_difference(whole - now[new], was, looks):
        return {place: 0.0 if place == new else now[place] for place in now}
    return _most_similar(before, now, *texts)


def _most_similar(
    before: Mapping[Range, float], now: Mapping[Range, float], old: str, new: str
) -> dict[Range, float]:
    alike = [
        (SequenceMatcher(None, _text(old, was), _text(new, is_)).ratio(), was, is_)
        for was in before
        for is_ in now
    ]
    matched: dict[Range, Range] = {}
    for ratio, was, is_ in sorted(alike, reverse=True):
        if ratio >= _ALIKE_RATIO and is_ not in matched and was not in matched.values():
            matched[is_] = was
    return {is_: before[matched[is_]] if is_ in matched else 0.0 for is_ in now}


def _error_of_difference(one: float, other: float, looks: int) -> float:
    """What two shares differ by for certain."""
    return _SURE * sqrt(_error(one, looks) ** 2 + _error(other, looks) ** 2)


def _error(ratio: float, looks: int) -> float:
    return sqrt(max(ratio * (1 - ratio), 1 / looks) / looks)


def _text(text: str, place: Range) -> str:
    """The lines of a statement as one."""
    return " ".join(line.strip() for line in text.split("\n")[place[0] - 1 : place[1]])
