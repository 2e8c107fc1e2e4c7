"""Runs the rules and ranks what they found by what fixing it would give."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from pinchpoint.analysis.host.on_cpu import compiled_for_cpu, computes_on_cpu
from pinchpoint.analysis.mean.on_cpu import (
    MOST_BEYOND_RATIO,
    QUICKER_REST_RATIO,
    slower_outside,
    usually_ns,
)
from pinchpoint.analysis.mean.what_if import (
    between,
    by_recorded,
    covered_ratio,
    saved_mean,
    what_if_mean,
)
from pinchpoint.analysis.replay import Change
from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.diagnosis.finding import Found, Small
from pinchpoint.diagnosis.registry import ask, is_about, rules
from pinchpoint.diagnosis.rule import MATERIAL_STEP_RATIO, Outcome
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace

# A generic cause's fix takes more work and is less sure; what wins less than a tenth of it is still
# not worth doing first.
SPECIFIC_RATIO = 0.1
# What no rule explains is surely there, too: a named cause goes first if it wins a third as much.
NAMED_RATIO = 1 / 3
# A replayed saving is uncertain by a quarter: of 4 % of the step, 3 % are sure.
SURELY_MATERIAL_RATIO = 0.04
# Where the range of the step after the fix reaches today's: twice the error of the step as it is
# said without the profiler (docs/accuracy.md).
UNSURE_MATERIAL_RATIO = 0.05


@dataclass(frozen=True)
class Ranked:
    """One finding with its prediction."""

    id: str
    finding: Found
    predicted: Prediction | None
    saving_ns: int  # expected gain a step; 0 where the consequence is not time
    given: tuple[str, ...] = ()  # findings that have to be fixed first for this one to pay


@dataclass(frozen=True)
class Diagnosis:
    """What all rules said, best finding first; every rule has one outcome."""

    found: tuple[Ranked, ...]
    together: Prediction | None
    outcomes: tuple[Outcome, ...]


def run_rules(trace: Trace) -> tuple[Outcome, ...]:
    """The answer of every rule that is about such a recording, in order of id."""
    return tuple(ask(known, trace) for known in rules().values() if is_about(known.rule, trace))


@once_per_trace
def diagnose(trace: Trace) -> Diagnosis:
    """Run all rules, predict each finding's gain, drop what adds nothing, rank the rest.

    Findings often explain the same time twice, or hide behind each other. So they are taken in
    order of their own gain, and one stays only if the step gets materially faster when it is fixed
    on top of those before it. What only pays after others are fixed is kept with their ids.
    """
    return weighed(trace, run_rules(trace))


def weighed(trace: Trace, outcomes: tuple[Outcome, ...]) -> Diagnosis:
    """The same of what some rules said."""
    ranked = [predicted(trace, o.id, f) for o in outcomes for f in o.findings]
    special, shares = _most_winning_children(ranked), _shares(ranked)
    covered: dict[str, tuple[str, ...]] = {
        r.id: (special[r.id].id,) for r in ranked if _yields(r, special)
    }
    ranked = [r for r in ranked if not _yields(r, special)]
    ranked.sort(key=lambda r: (-r.saving_ns, r.id))
    kept: list[Ranked] = []
    in_order = _specific_first(trace, ranked)
    for candidate in sorted(in_order, key=lambda r: rules()[r.id].rule.residual):
        stays = _stays(trace, kept, candidate)
        if stays is not None:
            kept.append(stays)
        elif _material(trace, candidate):
            covered[candidate.id] = _covering(trace, kept, candidate)
    kept.sort(key=lambda r: (-r.saving_ns, r.id))
    kept = _specific_first(trace, _causes_first(kept))
    kept = sorted(kept, key=lambda r: (-run_ratio(r, kept), len(r.given)))
    timed = [r for r in kept if r.finding.changes]
    together = after_fixes(trace, [r.finding for r in timed]) if len(timed) > 1 else None
    together = no_less_than_one(together, kept) if computes_on_cpu(trace) else together
    shown = {r.id for r in kept}
    said = (
        o if o.id in shown else _dropped(o, covered.get(o.id, ()), shares.get(o.id))
        for o in outcomes
    )
    return Diagnosis(tuple(kept), together, tuple(said))


def no_less_than_one(together: Prediction | None, found: Iterable[Ranked]) -> Prediction | None:
    """On one thread, fixes together win no less than one of them alone."""
    if together is None:
        return None
    alone = [r.predicted for r in found if r.predicted and not r.given]
    step_ns = min([together.step_ns, *(after.step_ns for after in alone)])
    low_ns = min([together.range_ns[0], *(after.range_ns[0] for after in alone)])
    return replace(together, step_ns=step_ns, range_ns=(low_ns, together.range_ns[1]))


# Of a step's gain to the part of a run: of most runs steps are a quarter at least.
OUTWEIGHED_TIMES = 4


def run_ratio(ranked: Ranked, found: Iterable[Ranked]) -> float:
    """What goes before causes of the step: what takes most of the run and shows in no step, but
    not what passes before or after the steps. A run that is longer has no more of that. Nor what
    takes a small part of the run beside a cause that is worth far more of each step."""
    found = tuple(found)
    of_a_step = (r.predicted is not None and not r.finding.beside_steps for r in found)
    if ranked.finding.beside_steps and any(of_a_step):
        return 0.0
    ratio = ranked.finding.run_ratio or 0.0
    won = (r.saving_ns / r.predicted.base_ns for r in found if r.predicted and not r.given)
    return 0.0 if ratio * OUTWEIGHED_TIMES < max(won, default=0.0) else ratio


def _stays(trace: Trace, kept: list[Ranked], candidate: Ranked) -> Ranked | None:
    """The candidate if it says more than those that are kept, else None."""
    if not rules()[candidate.id].rule.residual:
        return _on_top(trace, kept, candidate)
    mine = candidate.finding.changes or candidate.finding.at_best
    explained = 2 * covered_ratio(trace, _changes(kept), mine) >= 1
    return candidate if _material(trace, candidate) and not explained else None


def _shares(ranked: Iterable[Ranked]) -> dict[str, float]:
    """What fixing each cause would win of the step, where that is known."""
    shares: dict[str, float] = {}
    for one in ranked:
        if one.predicted is not None and one.predicted.base_ns:
            share = max(one.saving_ns, 0) / one.predicted.base_ns
            shares[one.id] = max(share, shares.get(one.id, 0.0))
    return shares


def _dropped(outcome: Outcome, covered_by: tuple[str, ...], share: float | None) -> Outcome:
    """The answer of a rule whose findings are not shown; ``share`` is what they win of the step."""
    if outcome.answer != "found":
        return outcome
    if covered_by:
        why = f"covered by {' and '.join(covered_by)}"
        return replace(outcome, answer="covered", why=why, covered_by=covered_by)
    least = f"{100 * MATERIAL_STEP_RATIO:.0f} % of the step"
    why = f"smaller than {least}" if share is None else Small(share, MATERIAL_STEP_RATIO).why
    if share is not None and share >= MATERIAL_STEP_RATIO:  # of what may be won, too little is sure
        why = f"not surely {least}: {100 * share:.1f} %"
    return replace(outcome, answer="smaller", why=why, step_ratio=share)


def _changes(ranked: Iterable[Ranked]) -> list[Change]:
    return [change for r in ranked for change in r.finding.changes or r.finding.at_best]


def _changes_of(findings: Iterable[Found]) -> list[Change]:
    return [change for one in findings for change in one.at_best or one.changes]


def _specific_first(trace: Trace, ranked: list[Ranked]) -> list[Ranked]:
    """Generic causes behind the specific ones that pay: their fix is local and sure.

    A cause that would win a small part of what the generic one does keeps its place.
    """
    generic = [r for r in ranked if rules()[r.id].rule.generic]
    if not generic:
        return ranked
    least = SPECIFIC_RATIO * max(r.saving_ns for r in generic)
    early = [r for r in ranked if r not in generic and r.saving_ns >= least and _material(trace, r)]
    rest = [r for r in ranked if r not in early and r not in generic]
    return [*early, *generic, *rest]


def _causes_first(ranked: list[Ranked]) -> list[Ranked]:
    """Places that no rule explains behind the named causes that pay: what to do is known for these.

    A cause that would win a small part of what the place does keeps its place, and so do generic
    ones, which come last anyhow.
    """
    out: list[Ranked] = []
    for one in ranked:
        if not rules()[one.id].rule.residual:
            before = [r for r in out if rules()[r.id].rule.residual]
            passed = [r for r in before if one.saving_ns >= NAMED_RATIO * r.saving_ns]
            named = not rules()[one.id].rule.generic and passed
            out.insert(out.index(passed[0]) if named else len(out), one)
        else:
            out.append(one)
    return out


def _on_top(trace: Trace, kept: list[Ranked], candidate: Ranked) -> Ranked | None:
    """The candidate if fixing it pays beside those that are kept, else None."""
    timed = [r for r in kept if r.finding.changes] if candidate.finding.changes else []
    both = _beside(trace, timed, candidate) if timed else None
    if both is None:
        return candidate if _material(trace, candidate) else None
    if not _is_material(both) or _too_little_for_a_generic_one(both):
        return None
    if _material(trace, candidate):
        return candidate
    return replace(both, given=tuple(r.id for r in timed))


def _beside(trace: Trace, timed: list[Ranked], candidate: Ranked) -> Ranked | None:
    """The candidate with what it wins once others are fixed; None where replay cannot say."""
    every_step, before = rules()[candidate.id].rule.periodic, [r.finding for r in timed]
    first = after_fixes(trace, before, every_step=every_step)
    both = after_fixes(trace, [*before, candidate.finding], every_step=every_step)
    if first is None or both is None:
        return None
    return replace(candidate, predicted=both, saving_ns=first.step_ns - both.step_ns)


def _too_little_for_a_generic_one(ranked: Ranked) -> bool:
    """Whether a generic cause is left with less than what the prediction of the rest may be off."""
    assert ranked.predicted is not None
    least = SPECIFIC_RATIO * ranked.predicted.base_ns
    return rules()[ranked.id].rule.generic and ranked.saving_ns < least


def _is_material(ranked: Ranked) -> bool:
    after = ranked.predicted
    assert after is not None
    surely = after.range_ns[1] < after.step_ns + ranked.saving_ns
    least = SURELY_MATERIAL_RATIO if surely else UNSURE_MATERIAL_RATIO
    return ranked.saving_ns >= least * after.base_ns


def _covering(trace: Trace, kept: list[Ranked], candidate: Ranked) -> tuple[str, ...]:
    """The one finding beside which the candidate does not pay; all of them if no single one."""
    timed = [r for r in kept if r.finding.changes]
    for one in timed if len(timed) > 1 else ():
        both = _beside(trace, [one], candidate)
        if both is not None and not _is_material(both):
            return (one.id,)
    return tuple(dict.fromkeys(r.id for r in timed))


def predicted(trace: Trace, id_: str, finding: Found) -> Ranked:
    """The finding with the step after its fix, alone."""
    if finding.saving_ns_per_step is not None:
        saving, likely = finding.saving_ns_per_step, finding.likely_saving_ns
        after = saved_mean(trace, saving, finding.leaves_ns_per_step, likely_ns=likely)
        after = within_cost(trace, after, [finding])
        middle = sum(saving) // 2 if likely is None else likely
        sure = _as_sure(finding, after)
        return Ranked(id_, sure, after, middle if after is None else after.saving_ns)
    replayed = None
    if finding.changes or finding.at_best:
        replayed = after_fixes(trace, [finding], every_step=rules()[id_].rule.periodic)
    replayed = _with_what_replaces_it(id_, replayed)
    sure = _as_sure(finding, replayed)
    return Ranked(id_, sure, replayed, replayed.saving_ns if replayed else 0)


# Of the host's time that a place takes, what may stay: what does the same in another way takes
# time, too. Of nine such places whose fixes were measured on H200s two left a tenth, others less.
REPLACED_RATIO = 0.1


def _with_what_replaces_it(id_: str, after: Prediction | None) -> Prediction | None:
    """A place that is named for its time alone goes altogether at best."""
    rule = rules()[id_].rule
    if after is None or not (rule.residual and rule.removes_host_work):
        return after
    low_ns, high_ns = after.range_ns
    most_ns = after.step_ns + round(REPLACED_RATIO * max(after.saving_ns, 0))
    return replace(after, range_ns=(low_ns, max(high_ns, most_ns)))


def _as_sure(finding: Found, after: Prediction | None) -> Found:
    """The finding, no surer than its gain: sure is a cause of which even the least is material."""
    if after is None or finding.confidence != "high":
        return finding
    least_ns = after.base_ns - after.range_ns[1]
    if least_ns >= UNSURE_MATERIAL_RATIO * after.base_ns:
        return finding
    return structs.replace(finding, confidence="medium")


def after_fixes(
    trace: Trace, findings: Sequence[Found], *, every_step: bool = False
) -> Prediction | None:
    """The step with all of these fixed: in the middle, where a fix of them may win more."""
    changes = [change for one in findings for change in one.changes]
    sure = what_if_mean(trace, changes, every_step=every_step, runs_ahead=True)
    if not any(one.at_best for one in findings):
        return within_cost(trace, sure, findings)
    most = _changes_of(findings)
    best = what_if_mean(trace, most, every_step=every_step, runs_ahead=True)
    return within_cost(trace, between(sure, best), findings)


def within_cost(
    trace: Trace, after: Prediction | None, findings: Sequence[Found]
) -> Prediction | None:
    """The same, winning no more than is there: what the findings say that their causes take now,
    or the recorded time that their fixes take away, with what usually goes with it.

    On a CPU one thread's time is the step: what is not there cannot be won. Steps that others'
    programs made longer than the recorded ones make all of it longer by one ratio. With a device a
    fix may win what waited for the cause, too.
    """
    costs = [one.cost_ns_per_step for one in findings]
    on_cpu = computes_on_cpu(trace) or compiled_for_cpu(trace)
    if after is None or not on_cpu or None in costs:
        return after
    there_ns = slower_outside(trace) * sum(cost for cost in costs if cost is not None)
    recorded = by_recorded(trace, _changes_of(findings))
    recorded_ns = recorded.saving_ns if recorded else 0
    if any(one.saving_ns_per_step is not None for one in findings):
        return _as_the_rule_knows(after, round(max(there_ns, recorded_ns)))
    least_ns = min(usually_ns(after.base_ns, round(there_ns)), after.base_ns - recorded_ns)
    low_ns = after.base_ns - round((1 + MOST_BEYOND_RATIO) * there_ns)
    low_ns = min(low_ns, recorded.range_ns[0]) if recorded else low_ns
    rest_ns = (1 - QUICKER_REST_RATIO) * (after.base_ns - max(there_ns, recorded_ns))
    low_ns = max(low_ns, round(rest_ns))
    step_ns, low_ns = max(after.step_ns, least_ns), max(after.range_ns[0], low_ns)
    return replace(after, step_ns=step_ns, range_ns=(low_ns, max(after.range_ns[1], step_ns)))


def _as_the_rule_knows(after: Prediction, most_ns: int) -> Prediction:
    """A rule that knows the gain otherwise has its own reason for it; what stays is as doubtful."""
    step_ns = max(after.step_ns, after.base_ns - most_ns)
    saving_ns = (1 + MOST_BEYOND_RATIO) * (after.base_ns - step_ns)
    rest_ns = max((1 - QUICKER_REST_RATIO) * step_ns, after.base_ns - saving_ns)
    low_ns = min(after.range_ns[0], round(rest_ns))
    step_ns = max(usually_ns(after.base_ns, after.base_ns - step_ns), low_ns)
    return replace(after, step_ns=step_ns, range_ns=(low_ns, max(after.range_ns[1], step_ns)))


def _most_winning_children(ranked: list[Ranked]) -> dict[str, Ranked]:
    """For each more general cause the finding that wins most of those that name it as parent."""
    best: dict[str, Ranked] = {}
    for one in ranked:
        for parent in parents(one.id):
            if parent not in best or one.saving_ns > best[parent].saving_ns:
                best[parent] = one
    return best


def _yields(ranked: Ranked, special: dict[str, Ranked]) -> bool:
    """Whether a more specific cause explains at least half of what this one would win."""
    child = special.get(ranked.id)
    return child is not None and max(child.saving_ns, 0) >= ranked.saving_ns // 2


def parents(id_: str) -> Iterable[str]:
    """The more general causes that a rule names, nearest first."""
    known = rules().get(id_)
    while known is not None and known.rule.parent is not None:
        yield known.rule.parent
        known = rules().get(known.rule.parent)


def _material(trace: Trace, ranked: Ranked) -> bool:
    """Whether even less than predicted is worth the while."""
    if ranked.finding.consequence is not None:
        return True
    if ranked.predicted is None:  # nothing to replay: what the cause costs has to do
        steps = judged_steps(trace)
        length = float(np.mean(steps.end_ns - steps.start_ns)) if len(steps) else 0.0
        return (ranked.finding.cost_ns_per_step or 0) > MATERIAL_STEP_RATIO * length
    if ranked.finding.saving_ns_per_step is not None:
        sure_ns = ranked.finding.saving_ns_per_step[0]
        return sure_ns >= MATERIAL_STEP_RATIO * ranked.predicted.base_ns
    return _is_material(ranked)
