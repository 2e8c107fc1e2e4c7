"""In which order to make the fixes: what is won, for what it takes.

Whoever has an hour asks: which change pays, how sure is that, and how much work is it. A gain is
sure as far as even the slow end of its range is faster than today's step; it counts halfway between
what is sure and what is expected. A place for which no fix is known surely wins before a known fix
that does not. What the causal profile shows and no rule explains stands last.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import TypeVar

import numpy as np

from pinchpoint.analysis.causal.limits import needed_limits
from pinchpoint.analysis.causal.pieces import Cut, compiled_place, pieces
from pinchpoint.analysis.causal.profile import Piece, off_path
from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.mean.what_if import covered_ratio, step_base_ns
from pinchpoint.analysis.replay import LimitDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.diagnosis.engine import NAMED_RATIO, SPECIFIC_RATIO, Diagnosis, Ranked
from pinchpoint.diagnosis.engine import diagnose as diagnose_one
from pinchpoint.diagnosis.registry import rules
from pinchpoint.diagnosis.rule import MATERIAL_STEP_RATIO
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace

# Limits are right within a factor of two (rule slow-operator): nearer to it nothing is known.
FAR_RATIO = 3.0
# Of the step, after all fixes. Where they win more, a line with twice as much to win is rare, and
# looking at all lines takes a third of a diagnosis.
FEW_EXPLAINED_RATIO = 0.85
ALIKE_GAIN_RATIO = 0.9  # gains of two changes are told apart no better (docs/accuracy.md)
WORTH_A_RUNG_RATIO = 0.05  # of the step, at the limit; less is the error of a limit
WHOLE_STEP_RATIO = 0.8  # of the step: what wins more is the step by another name
ALIKE_RATIO = 0.01  # of the step: an operator and the only line that calls it differ by less
MOST_HEAVY = 4  # pieces, as many as a first screen has room for beside the verdict


class Effort(Enum):
    """What a fix takes: only the order rests on it."""

    SETTING = "setting"  # ``pinchpoint try`` makes the very change by itself
    LINES = "lines"  # a few lines at one place
    WORK = "work"  # the whole program
    SEARCH = "search"  # what to do about it is not known

    @property
    def weight(self) -> float:
        """By which a gain is divided: as many times as much makes up for what the fix takes."""
        return _WEIGHTS.get(self, 1.0)


# Knobs that try one of several ways to mend what a rule found in the code: the mending is a change
# of lines (a loop, a function).
_ONE_WAY = frozenset({"compile"})

# The engine's ratios between a named cause, a generic one and a place alone.
_WEIGHTS = {Effort.WORK: 1 / SPECIFIC_RATIO, Effort.SEARCH: 1 / NAMED_RATIO}


@dataclass(frozen=True)
class Rung:
    """One change, and the step after it."""

    id: str  # of the finding; of a piece its name
    step_ns: int
    range_ns: tuple[int, int]  # least and most
    base_ns: int  # that it counts from: today's step, or the one with ``after`` fixed
    effort: Effort
    after: tuple[str, ...] = ()  # findings that have to be fixed first
    on_host: bool = False  # of a piece: the step without its host time, not at its device's limit
    free: bool = False  # of a piece: the step if it cost nothing
    once_a_step: bool = False  # of a finding: a wait that comes once a step
    where: str | None = None  # of a finding: its place, which tells two of one rule apart

    @property
    def sure_ns(self) -> int:
        """What is won even at the slow end of the range."""
        return max(self.base_ns - self.range_ns[1], 0)

    @property
    def won_ns(self) -> int:
        """What is expected."""
        return self.base_ns - self.step_ns

    @property
    def counted_ns(self) -> int:
        """Halfway between what is sure and what is expected."""
        return (self.sure_ns + self.won_ns) // 2


@dataclass(frozen=True)
class Ladder:
    """Today's step and the changes, the one to make first first; a piece that no rule explains."""

    base_ns: int
    rungs: tuple[Rung, ...]
    unexplained: Rung | None = None
    heaviest: tuple[Rung, ...] = ()  # pieces, where no rule finds anything to change


def ladder(trace: Trace, said: Diagnosis, *, host: bool = True) -> Ladder | None:
    """The ladder of a diagnosis; None where no step is known that gains could count from.

    ``host``: look among the program's lines, too, where findings explain little; it takes a while.
    """
    base_ns = step_base_ns(trace) or _base_of(said)
    if base_ns is None:
        return None
    rungs = [rung for ranked in said.found if (rung := _rung(ranked, base_ns))]
    rungs = _surer_places_first(sorted(rungs, key=by_gain), lambda rung: rung)
    rungs = _removed_before_hidden(rungs, lambda rung: rung)
    rungs = _needless_before_compiler(rungs, lambda rung: rung)
    rungs = _after_what_they_need(rungs, lambda rung: rung.after)
    best_ns = min((rung.step_ns for rung in rungs), default=base_ns)
    if said.together is not None:
        best_ns = min(best_ns, said.together.step_ns)
    left = _unexplained(trace)
    if left is None and host and best_ns > FEW_EXPLAINED_RATIO * base_ns:
        left = _unexplained_on_host(trace, base_ns - best_ns)
    return Ladder(base_ns, tuple(rungs), left, () if rungs or not host else _heaviest(trace))


def in_order(said: Diagnosis) -> Diagnosis:
    """The diagnosis with its findings as the ladder has them; those without one keep their places.

    What wins most for what it takes comes first; what is equal keeps the order of causes.
    """
    base_ns = _base_of(said)
    if base_ns is None:
        return said
    rungs = [(_rung(ranked, base_ns), ranked) for ranked in said.found]  # ids come twice
    timed = sorted(((rung, one) for rung, one in rungs if rung), key=lambda pair: by_gain(pair[0]))
    timed = _surer_places_first(timed, lambda pair: pair[0])
    timed = _removed_before_hidden(timed, lambda pair: pair[0])
    timed = _needless_before_compiler(timed, lambda pair: pair[0])
    next_ = iter(_after_what_they_need([one for _, one in timed], lambda one: one.given))
    return replace(said, found=tuple(next(next_) if rung else one for rung, one in rungs))


_Change = TypeVar("_Change", Ranked, Rung)
_Order = TypeVar("_Order", Rung, tuple[Rung, Ranked])


def _after_what_they_need(
    changes: list[_Change], needs: Callable[[_Change], Sequence[str]]
) -> list[_Change]:
    """The same order, but for what counts from others, which follows all of those."""
    left, out = list(changes), list[_Change]()
    while left:
        waiting = {one.id for one in left}
        at = next((i for i, one in enumerate(left) if not waiting.intersection(needs(one))), 0)
        out.append(left.pop(at))
    return out


def _surer_places_first(changes: list[_Order], rung_of: Callable[[_Order], Rung]) -> list[_Order]:
    """The same order, but a place that surely wins goes before a known fix that wins less, and is
    either not sure to win anything worth while, or too little to be that place's cause.

    What explains half of a place may be its cause, and says what to do there: it stays in front.
    """
    out = list[_Order]()
    for one in changes:
        rung, at = rung_of(one), len(out)
        if rung.effort is Effort.SEARCH and not rung.after:
            at = next((i for i, other in enumerate(out) if _is_surer(rung, rung_of(other))), at)
        out.insert(at, one)
    return out


def _is_surer(place: Rung, named: Rung) -> bool:
    """Whether a place whose fix is not known goes before a change whose fix is."""
    if named.effort not in (Effort.SETTING, Effort.LINES) or named.after:
        return False
    least_ns = MATERIAL_STEP_RATIO * place.base_ns
    if place.sure_ns < max(least_ns, named.sure_ns) or place.won_ns <= named.won_ns:
        return False
    if place.where is not None and place.where == named.where:  # it may say why
        return False
    return named.sure_ns < least_ns or 2 * named.won_ns < place.won_ns


def _removed_before_hidden(
    changes: list[_Order], rung_of: Callable[[_Order], Rung]
) -> list[_Order]:
    """The same order, but work of the host goes before a wait once a step that lets it show.

    Without that wait the host would do the same work while the device does its own: what both win
    is the same idle time, and the work is its cause. Several waits a step are one themselves.
    """
    out = list[_Order]()
    for one in changes:
        rung, at = rung_of(one), len(out)
        if rules()[rung.id].rule.removes_host_work and not rung.after:
            most_ns = rung.counted_ns / ALIKE_GAIN_RATIO
            before = enumerate(map(rung_of, out))
            passed = (i for i, r in before if r.once_a_step and r.counted_ns <= most_ns)
            at = next(passed, at)
        out.insert(at, one)
    return out


def _needless_before_compiler(
    changes: list[_Order], rung_of: Callable[[_Order], Rung]
) -> list[_Order]:
    """The same order, but work that nobody needs goes before what a compiler makes quicker, if it
    wins a third as much, surely enough: a compiler cannot leave it out, and wins less without it.
    """
    out = list[_Order]()
    for one in changes:
        rung, at = rung_of(one), len(out)
        sure = rung.sure_ns >= MATERIAL_STEP_RATIO * rung.base_ns
        if rules()[rung.id].family == "needless" and sure and not rung.after:
            most_ns = rung.won_ns / NAMED_RATIO
            before = enumerate(map(rung_of, out))
            passed = (
                i
                for i, r in before
                if "compile" in rules()[r.id].rule.knobs and r.won_ns <= most_ns and not r.after
            )
            at = next(passed, at)
        out.insert(at, one)
    return out


def by_gain(rung: Rung) -> tuple[bool, float]:
    """A key to sort by: gain for effort; what only pays after others comes after them."""
    return bool(rung.after), -rung.counted_ns / rung.effort.weight


def _base_of(said: Diagnosis) -> int | None:
    return next((r.predicted.base_ns for r in said.found if r.predicted is not None), None)


def _rung(ranked: Ranked, base_ns: int) -> Rung | None:
    predicted = ranked.predicted
    if predicted is None or ranked.saving_ns <= 0:
        return None
    return Rung(
        id=ranked.id,
        step_ns=predicted.step_ns,
        range_ns=predicted.range_ns,
        base_ns=predicted.step_ns + ranked.saving_ns if ranked.given else base_ns,
        effort=effort_of(ranked.id, ranked.finding.confirm),
        after=ranked.given,
        once_a_step=ranked.finding.once_a_step,
        where=(ranked.finding.location.short or None) if ranked.finding.location else None,
    )


def effort_of(rule_id: str, confirm: str) -> Effort:
    """What the fix of a finding takes; a setting is what the command that proves it makes."""
    rule = rules()[rule_id].rule
    if rule.residual and not rule.fix_known:
        return Effort.SEARCH
    if rule.generic:
        return Effort.WORK
    tried = any(f"--knob {knob}" in confirm for knob in set(rule.knobs) - _ONE_WAY)
    return Effort.SETTING if tried else Effort.LINES


def _unexplained(trace: Trace) -> Rung | None:
    """The operator far from its limit with most to gain, unless findings explain half of it."""
    far = [
        piece
        for piece in off_path(trace, Cut.OPERATOR).pieces
        if piece.in_kernels
        and piece.times_limit is not None
        and piece.times_limit >= FAR_RATIO
        and piece.base_ns - piece.step_at_limit_ns >= WORTH_A_RUNG_RATIO * piece.base_ns
    ]
    most = min(far, key=lambda piece: piece.step_at_limit_ns, default=None)
    if most is None or _is_explained(trace, most):
        return None
    at_twice = min(most.step_at_limit_ns + (most.limit_ns or 0), most.base_ns)
    return Rung(
        most.name,
        most.step_at_limit_ns,
        (most.step_at_limit_ns, at_twice),
        most.base_ns,
        Effort.WORK,
    )


def _unexplained_on_host(trace: Trace, explained_ns: int) -> Rung | None:
    """The line whose host time the step waits for most, unless findings gain half as much.

    What it would really win is not known: all of it at most, and nothing at least.
    """
    lines = off_path(trace, Cut.LINE).pieces
    most = min(lines, key=lambda piece: piece.step_without_host_ns, default=None)
    if most is None:
        return None
    gain_ns = most.base_ns - most.step_without_host_ns
    if gain_ns < WORTH_A_RUNG_RATIO * most.base_ns or 2 * explained_ns >= gain_ns:
        return None
    step_ns = most.step_without_host_ns
    between = (step_ns, most.base_ns)
    return Rung(_said(most.name), step_ns, between, most.base_ns, Effort.SEARCH, on_host=True)


def _heaviest(trace: Trace) -> tuple[Rung, ...]:
    """What the largest pieces of the step are worth, if each cost nothing.

    Pieces around almost the whole step are the step itself: kernels tell more, as of a graph that
    one line replays. Of pieces that are worth the same, which are one work under two names, the
    program's line is taken.
    """
    cuts = (Cut.LINE, Cut.COLLECTIVE, Cut.OPERATOR)
    found = [piece for cut in cuts for piece in off_path(trace, cut).pieces]
    inside = _inside_the_step(found) or _inside_the_step(off_path(trace, Cut.KERNEL).pieces)
    chosen: list[Piece] = []
    for piece in sorted(inside, key=lambda one: (-_won_ns(one), one.cut != Cut.LINE)):
        if all(abs(_won_ns(piece) - _won_ns(one)) > ALIKE_RATIO * piece.base_ns for one in chosen):
            chosen.append(piece)
    return tuple(map(_free, chosen[:MOST_HEAVY]))


def _inside_the_step(found: Sequence[Piece]) -> list[Piece]:
    least, most = WORTH_A_RUNG_RATIO, WHOLE_STEP_RATIO
    return [one for one in found if least * one.base_ns <= _won_ns(one) < most * one.base_ns]


def _won_ns(piece: Piece) -> int:
    return piece.base_ns - piece.step_if_free_ns


def _free(piece: Piece) -> Rung:
    """The range is from nothing of the piece to as much of it as the machine needs, if known."""
    most_ns = piece.step_at_limit_ns if piece.limit_ns else piece.base_ns
    between = piece.step_if_free_ns, max(most_ns, piece.step_if_free_ns)
    of_device = piece.cut in (Cut.COLLECTIVE, Cut.KERNEL)
    name = short_kernel_name(piece.name) if of_device else _said(piece.name)
    return Rung(name, between[0], between, piece.base_ns, Effort.SEARCH, free=True)


def _said(name: str) -> str:
    at = frame_of(name)
    if at is None:
        return compiled_place(name) or name
    return f"{at.function} ({at.file}:{at.line})"


def _is_explained(trace: Trace, piece: Piece) -> bool:
    changes = [change for ranked in diagnose_one(trace).found for change in ranked.finding.changes]
    mine = pieces(trace, Cut.OPERATOR).device == trace.names.index(piece.name)
    rows = np.flatnonzero(mine & device_ops_in_steps(trace))
    at_limit = LimitDeviceOps(rows, needed_limits(trace).at_limit_ns[rows])
    return 2 * covered_ratio(trace, changes, [at_limit]) >= 1
