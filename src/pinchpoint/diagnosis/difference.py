"""Why a step takes longer in one recording than in the other, named as ``diagnose`` would.

What rules find on the slower side, less what the same rules find on the faster one; what only the
two side by side show; and where neither explains the change, the pieces of both causal profiles,
subtracted.
"""

from collections.abc import Collection, Iterator

import msgspec

from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.analysis.mean.whole_run import only_samples
from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.analysis.steps.in_steps import says_too_little
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.compare.contrasts import Contrast, contrasts
from pinchpoint.compare.profiles import (
    CauseOfChange,
    FindingChange,
    ProfileComparison,
    compare_profiles,
)
from pinchpoint.compare.runs import compare_runs
from pinchpoint.compare.worth import ChangedWorth
from pinchpoint.diagnosis.engine import Diagnosis, Ranked, after_fixes, predicted
from pinchpoint.diagnosis.registry import rules
from pinchpoint.diagnosis.rule import MATERIAL_STEP_RATIO, About
from pinchpoint.diagnosis.windows import diagnose, predicted_by_names
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Severity, Trace

# A tenth of the change is within the error of most predicted gains (docs/accuracy.md).
LEAST_OF_CHANGE = 0.1
EXPLAINS_RATIO = 0.5  # of the change: most of it has a name


def explained(a: Trace, b: Trace) -> ProfileComparison:
    """Both recordings compared, with the causes of the change, best first."""
    if only_samples(a) and only_samples(b):
        sides = (_Side.of("A", a), _Side.of("B", b))
        return msgspec.structs.replace(compare_runs(a, b), findings=tuple(_findings(*sides)))
    found = compare_profiles(a, b)
    sides = (_Side.of("A", a), _Side.of("B", b))
    return msgspec.structs.replace(
        found,
        causes=tuple(_causes(found, *sides)),
        findings=tuple(_findings(*sides)),
    )


@dataclass(frozen=True, eq=False)
class _Side:
    name: str
    trace: Trace
    base_ns: int | None
    said: Diagnosis

    @classmethod
    def of(cls, name: str, trace: Trace) -> "_Side":
        said = diagnose(trace) if _conclusive(trace) else Diagnosis((), None, ())
        return cls(name, trace, step_base_ns(trace) or steps(trace).typical_ns, said)

    def has(self, id_: str) -> bool:
        """Whether the rule's finding is shown."""
        return any(r.id == id_ for r in self.said.found)

    def saving_ns(self, id_: str) -> int | None:
        """What fixing it would give, also where that is too little to be shown; None: not found."""
        shown = [r.saving_ns for r in self.said.found if r.id == id_]
        if shown:
            return sum(shown)
        small = [
            predicted(self.trace, o.id, f).saving_ns
            for o in self.said.outcomes
            if o.id == id_ and o.answer in ("smaller", "covered")
            for f in o.findings
        ]
        return max(small, default=None)


def _conclusive(trace: Trace) -> bool:
    health = trace.health
    fatal = health is not None and bool((health["severity"] == Severity.FATAL).any())
    return not fatal and not says_too_little(trace)


# ------------------------------------------------------------------------------------------------
# Causes, in the order in which to read them.


def _causes(found: ProfileComparison, a: _Side, b: _Side) -> Iterator[CauseOfChange]:
    change = _change_ns(found, a, b)
    clear = _is_clear(found, change, a)
    slow, fast = (a, b) if clear and change < 0 else (b, a)
    timed = list(_timed(slow, fast, abs(change)))
    timed = _with_contrast(found, timed, contrasts(a.trace, b.trace))
    if not any(_explains(c, change) for c in timed):
        timed += _unnamed(found.worth, change)
    yield from _mistakes_of_measuring(a, b)
    rest = list(_consequences(slow, fast))
    yield from (*timed, *rest) if clear else (*rest, *timed)


def _change_ns(found: ProfileComparison, a: _Side, b: _Side) -> int:
    if a.base_ns is not None and b.base_ns is not None:
        return b.base_ns - a.base_ns
    return found.change_ns or 0


def _is_clear(found: ProfileComparison, change: int, a: _Side) -> bool:
    """Whether the step did change: more than steps do, and the profiler did not make it up."""
    recorded = found.change_ns or 0
    least = MATERIAL_STEP_RATIO * (a.base_ns or found.a_step_ns or 0)
    return found.sure is not False and change * recorded >= 0 and abs(change) >= least


def _explains(cause: CauseOfChange, change: int) -> bool:
    return cause.change_ns is not None and cause.change_ns / (change or 1) >= EXPLAINS_RATIO


def _timed(slow: _Side, fast: _Side, change: int) -> Iterator[CauseOfChange]:
    """Findings of the slower side that would win more there, in the order of ``diagnose``."""
    sign = 1 if slow.name == "B" else -1
    for one in _first_of_each(slow.said):
        mine, other = slow.saving_ns(one.id) or 0, fast.saving_ns(one.id)
        more = mine - (other or 0)
        if more <= 0 or more < LEAST_OF_CHANGE * change:
            continue
        yield _cause(one, slow, mine, other, sign * more)


def _consequences(slow: _Side, fast: _Side) -> Iterator[CauseOfChange]:
    """Findings of the slower side alone that cost something else than time."""
    for one in _first_of_each(slow.said):
        about = rules()[one.id].rule.about
        if one.saving_ns > 0 or about is About.BENCHMARK or fast.has(one.id):
            continue
        yield _cause(one, slow, None, None, None)


def _mistakes_of_measuring(a: _Side, b: _Side) -> Iterator[CauseOfChange]:
    """What makes the figures of B other than they were: no time of it is worth reading before."""
    for one in _first_of_each(b.said):
        if rules()[one.id].rule.about is About.BENCHMARK and not a.has(one.id):
            yield _cause(one, b, None, None, None)


def _first_of_each(said: Diagnosis) -> list[Ranked]:
    return list({r.id: r for r in reversed(said.found)}.values())[::-1]


def _cause(
    one: Ranked, side: _Side, mine: int | None, other: int | None, change: int | None
) -> CauseOfChange:
    where = str(one.finding.location) if one.finding.location else None
    first, second = (mine, other) if side.name == "A" else (other, mine)
    return CauseOfChange(
        id=one.id,
        summary=one.finding.summary,
        rests_on="finding",
        change_ns=change,
        a_saving_ns=first,
        b_saving_ns=second,
        saving_bytes=one.finding.saving_bytes,
        where=where or None,
    )


def _with_contrast(
    found: ProfileComparison, timed: list[CauseOfChange], shown: tuple[Contrast, ...]
) -> list[CauseOfChange]:
    """A contrast that explains most of the change goes before findings that do not."""
    change, named = found.change_ns or 0, {c.id for c in timed}
    telling = [
        CauseOfChange(
            id=one.id,
            summary=one.summary,
            rests_on="contrast",
            change_ns=one.change_ns,
            possible=one.possible,
        )
        for one in shown
        if one.change_ns / (change or 1) >= EXPLAINS_RATIO and named.isdisjoint(one.possible)
    ]
    if any(_explains(c, change) for c in timed):
        return timed
    return [*telling, *timed]


def _unnamed(pieces: tuple[ChangedWorth, ...], change: int) -> Iterator[CauseOfChange]:
    """The piece that changed most, where no rule names most of the change."""
    for one in pieces:
        if one.change_ns / (change or 1) >= LEAST_OF_CHANGE:
            yield CauseOfChange(
                id="piece",
                summary=f"Without {one.name} the step would be {one.a_ns / 1e6:.3g} ms "
                f"shorter in A, and {one.b_ns / 1e6:.3g} ms in B; no rule says why",
                rests_on="piece",
                change_ns=one.change_ns,
                where=one.name,
            )
            return


# ------------------------------------------------------------------------------------------------
# Findings of both sides, subtracted.


def _findings(a: _Side, b: _Side) -> Iterator[FindingChange]:
    left, right = ({r.id: r.finding for r in _first_of_each(side.said)} for side in (a, b))
    for id_ in dict.fromkeys((*right, *left)):
        both = id_ in left and id_ in right
        yield FindingChange(
            id=id_,
            summary=(right.get(id_) or left[id_]).summary,
            change="stayed" if both else "appeared" if id_ in right else "went",
            a_cost_ns=left[id_].cost_ns_per_step if id_ in left else None,
            b_cost_ns=right[id_].cost_ns_per_step if id_ in right else None,
        )


def predicted_without(trace: Trace, ids: Collection[str]) -> Prediction | None:
    """The step once these findings are fixed: the replay of their changes together.

    None where replay knows none of them.
    """
    fixed = [ranked for ranked in diagnose(trace).found if ranked.id in ids]
    if len(fixed) == 1:
        return fixed[0].predicted
    timed = [ranked.finding for ranked in fixed if ranked.finding.changes]
    if len(timed) < sum(ranked.predicted is not None for ranked in fixed):
        return predicted_by_names(trace, {ranked.id for ranked in fixed})
    return after_fixes(trace, timed) if timed else None
