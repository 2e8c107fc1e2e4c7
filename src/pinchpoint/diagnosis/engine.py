"""Runs the rules and ranks what they found by what fixing it would give."""

import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from types import ModuleType

import numpy as np

from pinchpoint.analysis.in_steps import judged_steps
from pinchpoint.analysis.mean_what_if import covered_ratio, step_base_ns, what_if_mean
from pinchpoint.analysis.replay import Change
from pinchpoint.analysis.replay.predict import Prediction
from pinchpoint.diagnosis import rules
from pinchpoint.diagnosis.missing import missing
from pinchpoint.diagnosis.rule import (
    MATERIAL_STEP_RATIO,
    Finding,
    NotChecked,
    Outcome,
)
from pinchpoint.diagnosis.spoken import in_its_words, recordable
from pinchpoint.trace import Trace, once_per_trace

SPECIFIC_RATIO = 0.1  # of a generic cause's gain
SURELY_MATERIAL_RATIO = 0.04  # a replayed saving of which three quarters are material


@dataclass(frozen=True)
class Ranked:
    """One finding with its prediction."""

    id: str
    finding: Finding
    predicted: Prediction | None
    saving_ns: int  # expected gain a step; 0 where the consequence is not time
    given: tuple[str, ...] = ()  # findings that have to be fixed first for this one to pay


@dataclass(frozen=True)
class Diagnosis:
    """What all rules said, best finding first."""

    found: tuple[Ranked, ...]
    together: Prediction | None
    outcomes: tuple[Outcome, ...]


@cache
def rule_modules() -> dict[str, ModuleType]:
    """Every rule by its id, found by listing the folder."""
    names = sorted(m.name for m in pkgutil.iter_modules(rules.__path__))
    return {n.replace("_", "-"): import_module(f"{rules.__name__}.{n}") for n in names}


def run_rules(trace: Trace) -> tuple[Outcome, ...]:
    """The answer of every rule, in order of id."""
    return tuple(ask(id_, module, trace) for id_, module in rule_modules().items())


def ask(id_: str, rule: ModuleType, trace: Trace) -> Outcome:
    """One rule's answer; a rule that breaks costs only its own answer."""
    lacking = missing(trace, id_, rule)
    if lacking is not None:
        return lacking
    try:
        findings = tuple(rule.check(trace))
    except NotChecked as reason:
        record = recordable(trace, reason.record or rule.RECORD)
        return Outcome(id_, "not checked", why=reason.why, record=record)
    except Exception as error:  # a rule is judged by its own tests; the report must survive it
        return Outcome(id_, "crashed", why=f"{type(error).__name__}: {error}")
    return Outcome(id_, "found" if findings else "clear", findings)


@once_per_trace
def diagnose(trace: Trace) -> Diagnosis:
    """Run all rules, predict each finding's gain, drop what adds nothing, rank the rest.

    Findings often explain the same time twice, or hide behind each other. So they are taken in
    order of their own gain, and one stays only if the step gets materially faster when it is fixed
    on top of those before it. What only pays after others are fixed is kept with their ids.
    """
    outcomes = run_rules(trace)
    said = [(o.id, in_its_words(trace, f)) for o in outcomes for f in o.findings]
    ranked = _without_parents([_predict(trace, id_, finding) for id_, finding in said])
    ranked.sort(key=lambda r: (-r.saving_ns, r.id))
    ranked = _specific_first(trace, ranked)
    kept: list[Ranked] = []
    for candidate in (r for r in ranked if not _residual(r.id)):
        if not candidate.finding.changes:
            kept += [candidate] if _material(trace, candidate) else []
            continue
        on_top = _on_top(trace, kept, candidate)
        if on_top is not None:
            kept.append(on_top)
    known = [c for r in kept for c in r.finding.changes]
    kept += [r for r in ranked if _residual(r.id) and _unexplained(trace, known, r)]
    kept.sort(key=lambda r: (-r.saving_ns, r.id))
    kept = sorted(_specific_first(trace, kept), key=lambda r: len(r.given))
    timed = [r for r in kept if r.finding.changes]
    together = what_if_mean(trace, [c for r in timed for c in r.finding.changes])
    return Diagnosis(tuple(kept), together if len(timed) > 1 else None, outcomes)


def _specific_first(trace: Trace, ranked: list[Ranked]) -> list[Ranked]:
    """Generic causes behind the specific ones that pay: their fix is local and sure.

    A cause that would win a small part of what the generic one does keeps its place.
    """
    generic = [r for r in ranked if getattr(rule_modules()[r.id], "GENERIC", False)]
    if not generic:
        return ranked
    least = SPECIFIC_RATIO * max(r.saving_ns for r in generic)
    early = [r for r in ranked if r not in generic and r.saving_ns >= least and _material(trace, r)]
    rest = [r for r in ranked if r not in early and r not in generic]
    return [*early, *generic, *rest]


def _on_top(trace: Trace, kept: list[Ranked], candidate: Ranked) -> Ranked | None:
    """The candidate if fixing it pays beside those that are kept, else None."""
    if not any(r.finding.changes for r in kept):
        return candidate if _material(trace, candidate) else None
    every_step = _periodic(candidate.id)
    before = [c for r in kept for c in r.finding.changes]
    first = what_if_mean(trace, before, every_step=every_step)
    both = what_if_mean(trace, [*before, *candidate.finding.changes], every_step=every_step)
    if first is None or both is None:
        return candidate if _material(trace, candidate) else None
    more = replace(candidate, predicted=both, saving_ns=first.step_ns - both.step_ns)
    pays = more.saving_ns >= SURELY_MATERIAL_RATIO * both.base_ns
    if not pays:
        return None
    if _material(trace, candidate):
        return candidate
    return replace(more, given=tuple(r.id for r in kept if r.finding.changes))


def _residual(id_: str) -> bool:
    return bool(getattr(rule_modules()[id_], "RESIDUAL", False))


def _unexplained(trace: Trace, known: list[Change], candidate: Ranked) -> bool:
    """Whether a residual finding pays, and what others change covers less than half of it."""
    own = candidate.finding.changes
    return _material(trace, candidate) and 2 * covered_ratio(trace, known, own) < 1


def _predict(trace: Trace, id_: str, finding: Finding) -> Ranked:
    if finding.saving_ns_per_step is not None:
        least, most = finding.saving_ns_per_step
        base = step_base_ns(trace)
        middle = (least + most) // 2
        if base is None:
            return Ranked(id_, finding, None, middle)
        after = Prediction(max(base - middle, 0), (max(base - most, 0), base - least), base)
        return Ranked(id_, finding, after, middle)
    predicted = None
    if finding.changes:
        predicted = what_if_mean(trace, finding.changes, every_step=_periodic(id_))
    return Ranked(id_, finding, predicted, predicted.saving_ns if predicted else 0)


def _without_parents(ranked: Iterable[Ranked]) -> list[Ranked]:
    """A more general cause yields when a more specific one that names it as parent is found."""
    everything = list(ranked)
    modules = rule_modules()
    parents: dict[str, int] = {}
    for r in everything:
        parent = getattr(modules[r.id], "PARENT", None)
        while parent is not None:
            parents[parent] = max(parents.get(parent, 0), r.saving_ns)
            parent = getattr(modules.get(parent), "PARENT", None)
    return [r for r in everything if r.id not in parents or parents[r.id] < r.saving_ns // 2]


def _periodic(id_: str) -> bool:
    return bool(getattr(rule_modules()[id_], "PERIODIC", False))


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
    return ranked.predicted.saving_ns >= SURELY_MATERIAL_RATIO * ranked.predicted.base_ns
