"""Which of the lines that a commit changed became costly: times of both sides, subtracted.

The part that a changed statement has of a step of B, less what the lines that it replaced took in
A. Parts, as the lengths of both steps are known best from the pairs.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from difflib import SequenceMatcher
from math import inf, sqrt

from pinchpoint.bench.ab.changed_code import ChangedCode
from pinchpoint.bench.run.lines import LinesSeen, Share
from pinchpoint.frozen import dataclass

Range = tuple[int, int]  # first and last line
Texts = Mapping[str, str]  # by file
# Standard errors; by chance one difference in 700 is as large.
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
    a_ratio: float  # of a step of B, what the line took in A in whose place it stands
    b_ratio: float  # of a step of B, what it takes
    steps: int  # of B, that were timed


@dataclass(frozen=True)
class LineCosts:
    """What the changed lines took of a step: the one that is told to cost, and by changed place the
    part of a step that its lines have more than before, of those that were timed."""

    costly: CostlyLine | None = None
    parts: Mapping[ChangedCode, float] = field(default_factory=dict)


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
    """By file, the statements to time in B (``now``) or in A."""
    lines: dict[str, list[int]] = {}
    for one in code:
        for hunk in one.hunks:
            lines.setdefault(one.file, []).extend(hunk.added if now else hunk.removed)
    found = {file: ranges_of(lines[file], texts.get(file, "")) for file in lines}
    return {file: ranges for file, ranges in found.items() if ranges}


@dataclass(frozen=True)
class Timed:
    """One side: what was asked for, and what was seen of it."""

    asked: Mapping[str, tuple[Range, ...]]
    seen: LinesSeen | None  # None: nothing was asked for, so that nothing is its part
    step_ratio: float = 1.0  # of this side, to B's: parts are said of a step of B

    def shares(self, file: str, lines: Sequence[int]) -> dict[Range, Share]:
        """Of the statements that these lines are in."""
        wanted, ranges = set(lines), self.asked.get(file, ())
        known = self.seen.share if self.seen is not None else {}
        return {
            r: _times(known.get((file, n), Share()), self.step_ratio)
            for n, r in enumerate(ranges)
            if wanted & set(range(r[0], r[1] + 1))
        }


def costly_line(
    code: Sequence[ChangedCode],
    a: Timed,
    b: Timed,
    texts: tuple[Texts, Texts],
    most_ratio: float = inf,
) -> CostlyLine | None:
    """None where no changed line has clearly more of a step than what it replaced, or where two
    have as much more. ``texts``: the files of A and of B. ``most_ratio``: the part of a step of B
    that A has not, at most, by the pairs: times that say more contradict them, and tell nothing."""
    if b.seen is None:
        return None
    found: list[tuple[float, float, CostlyLine]] = []
    whole = 0.0
    for one in code:
        for hunk in one.hunks:
            now, before = b.shares(one.file, hunk.added), a.shares(one.file, hunk.removed)
            net = _sum(now.values()).mean - _sum(before.values()).mean
            whole += net
            old, new = (side.get(one.file, "") for side in texts)
            for place, was in _replaced(before, now, (old, new)).items():
                is_ = now[place]
                line = CostlyLine(
                    one, place[0], _text(new, place), was.mean, is_.mean, b.seen.steps
                )
                # What went from one line of a hunk to another of it is no growth.
                found.append((min(is_.mean - was.mean, net), _error(is_, was), line))
    found.sort(key=lambda one: -one[0])
    if not found:
        return None
    (growth, error, best), second = found[0], found[1][0] if found[1:] else 0.0
    sure = max(_LEAST_RATIO, error)
    if growth - error > most_ratio:
        return None
    return best if min(growth, whole) >= sure and growth - second >= sure else None


def grown_parts(code: Sequence[ChangedCode], a: Timed, b: Timed) -> dict[ChangedCode, float]:
    """By place, the part of a step of B that all its changed lines have more than those that they
    replaced; 0 where that is not clear. Only of places of which something was timed in B."""
    found = {}
    for one in code:
        now = [s for h in one.hunks for s in b.shares(one.file, h.added).values()]
        was = [s for h in one.hunks for s in a.shares(one.file, h.removed).values()]
        if b.seen is None or not now:
            continue
        net = _sum(now).mean - _sum(was).mean
        found[one] = net if net >= max(_LEAST_RATIO, _error(_sum(now), _sum(was))) else 0.0
    return found


def _replaced(
    before: Mapping[Range, Share], now: Mapping[Range, Share], texts: tuple[str, str]
) -> dict[Range, Share]:
    """For each statement of B, what those of A that it took the place of had of a step.

    All of them, of a single one, or where they had next to nothing. One without which the others
    have what there was before is new: whatever the others became, they cost the same; of several
    such ones, the one that is like none of A. Else each has what the most similar one had, if all
    that cost anything have such a one; if not, nobody knows what took the place of what, and
    nothing is said.
    """
    was = _sum(before.values())
    if len(now) == 1 or was.mean < _LEAST_RATIO:
        return dict.fromkeys(now, was)
    matched = _similar(before, now, *texts)
    may_be_new = []
    for place in now:
        rest = _sum(share for other, share in now.items() if other != place)
        if abs(rest.mean - was.mean) <= max(_LEAST_RATIO, _error(rest, was)):
            may_be_new.append(place)
    if len(may_be_new) > 1:
        may_be_new = [place for place in may_be_new if place not in matched]
    if len(may_be_new) == 1:
        return {place: Share() if place in may_be_new else share for place, share in now.items()}
    if any(now[place].mean >= _LEAST_RATIO for place in now if place not in matched):
        return {}
    return {place: before[old] for place, old in matched.items()}


def _similar(
    before: Mapping[Range, Share], now: Mapping[Range, Share], old: str, new: str
) -> dict[Range, Range]:
    """By their text, each at most once."""
    alike = [
        (SequenceMatcher(None, _text(old, was), _text(new, is_)).ratio(), was, is_)
        for was in before
        for is_ in now
    ]
    matched: dict[Range, Range] = {}
    for ratio, was, is_ in sorted(alike, reverse=True):
        if ratio >= _ALIKE_RATIO and is_ not in matched and was not in matched.values():
            matched[is_] = was
    return matched


def _times(share: Share, ratio: float) -> Share:
    return Share(share.mean * ratio, share.error * ratio)


def _sum(shares: Iterable[Share]) -> Share:
    known = list(shares)
    return Share(sum(s.mean for s in known), sqrt(sum(s.error**2 for s in known)))


def _error(one: Share, other: Share) -> float:
    """What two shares differ by at least where they differ for certain."""
    return _SURE * sqrt(one.error**2 + other.error**2)


def _text(text: str, place: Range) -> str:
    """The lines of a statement as one."""
    return " ".join(line.strip() for line in text.split("\n")[place[0] - 1 : place[1]])
