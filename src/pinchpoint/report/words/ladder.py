"""The sentences about the ladder of fixes: what to change first, why, and what it takes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pinchpoint.report.documents.ladder import LadderInfo, RungInfo
from pinchpoint.report.documents.report import Report
from pinchpoint.report.quantity import duration, in_unit, time_unit

if TYPE_CHECKING:
    from pinchpoint.report.documents.ranks import RanksReport


EFFORT = {  # least first, as the order of the ladder weighs them
    "setting": "a setting",
    "lines": "a few lines",
    "search": "a search",
    "work": "more work",
}
_WEIGHTS = tuple(EFFORT)
MOST_RUNGS = 6  # of findings, on a first screen; the cards below have all


def clock_words(report: "Report | RanksReport") -> str:
    """What the times of a page are: ``without the profiler`` or ``as recorded``."""
    known = report.steps.unprofiled_ns_predicted is not None
    return "without the profiler" if known else "as recorded"


def rung_label(ladder: LadderInfo, rung: RungInfo) -> str:
    """The change in a few words; of two findings of one rule with its place."""
    if rung.kind == "together":
        return "all of them"
    if rung.where and sum(other.id == rung.id for other in ladder.rungs) > 1:
        return f"{rung.id} {rung.where}"
    at_limit = rung.kind == "piece" and not (rung.on_host or rung.free)
    return f"{rung.id} at its limit" if at_limit else rung.id


def takes(rung: RungInfo) -> str:
    """What the change takes; empty for all together."""
    if rung.free:
        return "if it cost nothing"
    return "host time gone" if rung.on_host else EFFORT.get(rung.effort or "", "")


_OF_PIECES = (
    "No finding is about these, the heaviest pieces: each is at most worth what is shown."
    " A range ends at what the machine needs for it, where that is known. Pieces overlap."
)


def title(ladder: LadderInfo, clock: str) -> str:
    """What the bars are."""
    pieces = bool(ladder.rungs) and all(rung.kind == "piece" for rung in ladder.rungs)
    return f"The step {'without each of its pieces' if pieces else 'after each change'}, {clock}"


def why_this_order(ladder: LadderInfo) -> str | None:
    """Why the first change is first, where that is not the largest gain or not the least work."""
    if any(rung.free for rung in ladder.rungs):
        return _OF_PIECES
    rungs = [rung for rung in ladder.rungs if rung.kind == "finding" and not rung.after]
    if len(rungs) < 2:
        return None
    first, unit = rungs[0], time_unit(ladder.base_ns)
    effort = EFFORT[first.effort or "work"]
    said = f"{rung_label(ladder, first)} first: {_sure(first, unit)}; it takes {effort}."
    return said + _best_single(ladder, rungs, unit) + _less_work(ladder, rungs)


def _sure(rung: RungInfo, unit: str) -> str:
    if not rung.sure_ns:
        expected = in_unit(rung.base_ns - rung.step_ns, unit)
        return f"{expected} {unit} a step are expected, and none is sure"
    return f"at least {in_unit(rung.sure_ns, unit)} {unit} a step are won"


def _best_single(ladder: LadderInfo, rungs: Sequence[RungInfo], unit: str) -> str:
    named = [rung for rung in rungs if rung.id == ladder.best_single]
    if not named:
        return ""
    best = min(named, key=lambda rung: rung.step_ns)
    if _lets_it_show(best, rungs[0]):
        return ""
    after = f"{in_unit(best.base_ns, unit)} → {in_unit(best.step_ns, unit)} {unit}"
    more = _weight(best) > _weight(rungs[0])
    surer = best.sure_ns >= rungs[0].sure_ns
    rest = "makes work quicker that the first takes away" if surer else "is less sure"
    why = "takes more work" if more else rest
    return f" The best single change is {rung_label(ladder, best)} ({after}), which {why}."


def _less_work(ladder: LadderInfo, rungs: Sequence[RungInfo]) -> str:
    """A change that is less work than the first, and why it comes later all the same."""
    for rung in rungs[1:]:
        if _weight(rung) < _weight(rungs[0]):
            if _lets_it_show(rung, rungs[0]):
                name = rung_label(ladder, rung)
                return f" {name} is less work and wins the same time: it hides that work."
            why = f"only {duration(rung.sure_ns)} are sure"
            if not rung.sure_ns:
                why = "may win nothing: its range reaches today's step"
            elif rung.sure_ns >= rungs[0].sure_ns:
                why = "less is expected of it"
            return f" {rung_label(ladder, rung)} is less work, yet {why}."
    return ""


def _lets_it_show(rung: RungInfo, first: RungInfo) -> bool:
    """Whether a wait's fix hides the host's work that the first change takes away."""
    return rung.once_a_step and first.effort == "search"


def _weight(rung: RungInfo) -> int:
    return _WEIGHTS.index(rung.effort or "work")
