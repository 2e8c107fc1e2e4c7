"""A against B: interleaved pairs in fresh processes, looks at 5, 10 and 20 pairs, a verdict."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path

import msgspec

from pinchpoint.bench.ab.advice import advice
from pinchpoint.bench.ab.at_once import Manner, both_at_once, manner, why_apart
from pinchpoint.bench.ab.decision import (
    EARLY,
    EARLY_CONFIDENCE,
    Decision,
    decide_all,
    looks_up_to,
)
from pinchpoint.bench.ab.pairs import Pair, good_pairs, log_ratios, pair_seconds
from pinchpoint.bench.ab.quiet import decide_quietly, unless_worse_by_itself
from pinchpoint.bench.ab.result import EXCLUDED_LIMIT, AbResult, result_of
from pinchpoint.bench.folders import BenchSession
from pinchpoint.bench.measures import MEASURES, Measure, default_gates
from pinchpoint.bench.metrics import RunMetrics
from pinchpoint.bench.run import Arm, Place, RunOptions, measure_run, with_seed_of
from pinchpoint.bench.run.enough import like, said, steps_for, within
from pinchpoint.bench.run.process import tail
from pinchpoint.bench.run.swapped import Swap
from pinchpoint.bench.run.validity import is_busy
from pinchpoint.bench.run.waits import should_sleep
from pinchpoint.errors import MeasurementInvalid, UsageError
from pinchpoint.frozen import dataclass

DEFAULT_THRESHOLD = 0.03  # what ten to twenty pairs see on a typical machine (1.7 % noise)
MOST_PAIRS = 20  # the last look of decision.py
FEWEST_PAIRS = 3  # fewer decide nothing
LATEST = 3  # pairs that say what the next one takes: the load of a machine comes and goes

Notice = Callable[[str], None]


@dataclass(frozen=True)
class AbPlan:
    """What to compare, and what must not slip through."""

    a: Arm
    b: Arm
    options: RunOptions
    thresholds: Mapping[str, float] = field(default_factory=dict)  # by measure; empty: defaults
    threshold: float = DEFAULT_THRESHOLD
    prefer: tuple[str, ...] = ()  # gates instead of the defaults, of those that the runs give
    custom: Mapping[str, Measure] = field(default_factory=dict)
    most_pairs: int = MOST_PAIRS
    warmup_runs: int = 1  # unmeasured runs of each arm: file caches, compiled kernels
    stop_early: bool = True
    at_once: bool | None = None  # both runs of a pair; None: in two folders only
    budget_s: float | None = None  # no pair beyond the fewest that would end later than this

    def measures(self) -> dict[str, Measure]:
        """All measures by name."""
        return MEASURES | dict(self.custom)

    def gates(self, run: RunMetrics) -> dict[str, float]:
        """Threshold by gated measure; UsageError for a measure that the runs do not give."""
        preferred = tuple(n for n in self.prefer if self.measures()[n].get(run))
        names = tuple(self.thresholds) or preferred or default_gates(run)
        for name in names:
            self._check(name, run)
        return {name: self.thresholds.get(name, self.threshold) for name in names}

    def _check(self, name: str, run: RunMetrics) -> None:
        measure = self.measures().get(name)
        if measure is None:
            raise UsageError(
                f"no measure {name!r}", hint=f"one of: {', '.join(sorted(self.measures()))}"
            )
        if not measure.get(run):
            why = run.unknown.get("steps") or "it is null or zero in metrics.json"
            raise UsageError(f"{name}: the runs do not give it ({why})", hint="gate another")
        if too_few := measure.too_few(run):
            raise UsageError(f"{name}: {too_few}", hint="make the runs longer, or gate another")


def run_ab(
    plan: AbPlan, session: BenchSession, notice: Notice, *, warnings: Sequence[str] = ()
) -> AbResult:
    """Measure until the rule decides or the cap is reached.

    Raises MeasurementInvalid if a command fails, or if no two pairs can be compared.
    """
    asked = plan.options
    plan, so_far = _warmed_up(plan, session, notice)
    spent_s = sum(run.duration_s or 0.0 for run in so_far)
    warnings = (*warnings, *said(asked, plan.options))
    if plan.at_once and (why := why_apart(so_far)):
        warnings = (*warnings, f"--at-once: {why}, so that A and B ran one after the other")
        notice(warnings[-1])

    def pair(i: int) -> Pair:
        nonlocal plan
        now, done = _as_disturbed(plan, so_far), None
        how = manner(plan.a, plan.b, so_far, asked=plan.at_once)
        if how is not Manner.APART:
            done = _pair_at_once(i, now, session, notice, how)
            plan = plan if done else replace(plan, at_once=False)
        done = done or _measure_pair(i, now, session, notice)
        so_far.extend(done)
        return done

    found = decided(plan, pair, notice, warnings, spent_s)
    if not any(run.swapped for run in found.runs):
        return found
    alone = tuple(run for run in so_far if run.arm == plan.b.name and run.pair_index is None)
    return msgspec.structs.replace(found, alone=alone)


def decided(
    plan: AbPlan,
    pair: Callable[[int], Pair],
    notice: Notice,
    warnings: Sequence[str] = (),
    spent_s: float = 0.0,
) -> AbResult:
    """The same of pairs as they come: ``pair(i)`` gives the i-th, measured or recorded before.

    ``spent_s`` of the budget are gone before the first. Where pairs take longer than the first ones
    did, the last look is after as many as there was time for; that is no choice by what they say.
    """
    pairs = [pair(i) for i in range(FEWEST_PAIRS)]
    looks = _looks(plan, pairs, notice, spent_s)
    decisions = _early(plan, pairs, looks)
    if decisions:
        notice(f"after {len(pairs)} pairs: {_open_or_decided(decisions)}, with room to spare")
        looks = (EARLY, looks[-1])
    for look in () if decisions else looks:
        over = False
        while len(good_pairs(pairs)) < look and not _disturbed(pairs, look):
            over = _is_over(plan, pairs, spent_s)
            if over:
                good = len(good_pairs(pairs))
                looks = (*(n for n in looks if n < good), good)
                notice("pairs take longer than the first ones: the budget has time for no more")
                break
            pairs.append(pair(len(pairs)))
        decisions = _look(plan, pairs, looks, decisions)
        notice(f"after {len(good_pairs(pairs))} pairs: {_open_or_decided(decisions)}")
        if over or _disturbed(pairs, look) or _decided(plan, pairs, decisions, looks):
            break
    result = result_of(
        arms=(plan.a, plan.b),
        measures=plan.measures(),
        pairs=pairs,
        decisions=decisions,
        looks=looks,
        warnings=warnings,
        options=plan.options,
    )
    if result.decided_by:
        notice(f"in place of wall time, which stays open: {result.decided}")
    if result.verdict != "inconclusive":
        return result
    apart = plan.a.cwd != plan.b.cwd
    tried = apart if plan.at_once is None else plan.at_once
    said = advice(
        decisions,
        good_pairs(pairs),
        at_once_tried=tried,
        in_budget=plan.budget_s is not None,
    )
    return msgspec.structs.replace(result, advice=said)


def _early(plan: AbPlan, pairs: Sequence[Pair], looks: Sequence[int]) -> dict[str, Decision]:
    """The decisions of the first pairs where all of them pass with room to spare, and nothing looks
    better by so much that more pairs would say so; empty otherwise."""
    good = good_pairs(pairs)
    if not plan.stop_early or looks[0] <= EARLY or len(good) != len(pairs) or len(good) < EARLY:
        return {}
    gates, measures = plan.gates(good[0][0]), plan.measures()
    ratios = {name: log_ratios(good, measures[name]) for name in gates}
    if any(len(values) < EARLY for values in ratios.values()):
        return {}
    look, sure = (len(good),), EARLY_CONFIDENCE
    decisions = decide_all(ratios, gates, looks=look, alpha=0.0, pass_confidence=sure)
    decisions = unless_worse_by_itself(good, decisions, measures)
    quiet = decide_quietly(good, decisions, measures, look, pass_confidence=sure)
    passes = all(d.verdict == "pass" for d in decisions.values()) or quiet.verdict == "pass"
    each = [*decisions.values(), *quiet.decisions.values()]
    better = any(d.estimate_ratio <= -d.threshold_ratio / 2 for d in each)
    return decisions if passes and not better else {}


def _look(
    plan: AbPlan, pairs: Sequence[Pair], looks: Sequence[int], before: Mapping[str, Decision]
) -> dict[str, Decision]:
    """Decide on the pairs so far; what an earlier look decided stays decided."""
    good = good_pairs(pairs)
    if len(good) < 2:
        reasons = sorted({r for pair in pairs for run in pair for r in run.invalid_reasons})
        raise MeasurementInvalid(
            f"{len(good)} of {len(pairs)} pairs can be compared: {'; '.join(reasons)}",
            hint="remove the cause; every run's metrics.json names it",
        )
    gates = plan.gates(good[0][0])
    ratios = {name: log_ratios(good, plan.measures()[name]) for name in gates}
    reached = looks if len(good) >= looks[0] else (len(good),)  # disturbed: no look comes after it
    now = decide_all(ratios, gates, looks=reached)
    now = unless_worse_by_itself(good, now, plan.measures())
    kept = {n: d for n, d in before.items() if d.verdict != "inconclusive"}
    return now | kept


def _decided(
    plan: AbPlan, pairs: Sequence[Pair], decisions: Mapping[str, Decision], looks: Sequence[int]
) -> bool:
    """Whether another pair would change nothing: all gates are decided, or quiet measures do."""
    if all(d.verdict != "inconclusive" for d in decisions.values()):
        return True
    quiet = decide_quietly(good_pairs(pairs), decisions, plan.measures(), looks)
    return quiet.verdict != "inconclusive"


def _looks(plan: AbPlan, pairs: Sequence[Pair], notice: Notice, spent_s: float) -> tuple[int, ...]:
    """After how many pairs it is asked whether they decide. The last look is of as many as the
    budget has time for, by the first pairs, so that all of the error may be spent until then."""
    most = max(plan.most_pairs, len(pairs))
    if plan.budget_s is not None:
        took_s = max(pair_seconds(pairs), 1e-9)
        fit = max(int((plan.budget_s - spent_s) / took_s), 0)
        most = min(most, max(fit, len(pairs)))
        over = "" if fit >= len(pairs) else f", and {len(pairs)} are the fewest that can decide"
        notice(f"a pair takes {took_s:.2g} s: the budget has time for {fit}{over}")
    return looks_up_to(most) if plan.stop_early else (most,)


def _is_over(plan: AbPlan, pairs: Sequence[Pair], spent_s: float) -> bool:
    """Whether another pair, as long as the latest, would end after the budget."""
    if plan.budget_s is None:
        return False
    until_now_s = spent_s + len(pairs) * pair_seconds(pairs)
    return until_now_s + pair_seconds(pairs[-LATEST:]) > plan.budget_s


def _open_or_decided(decisions: Mapping[str, Decision]) -> str:
    return ", ".join(f"{name} {d.verdict}" for name, d in decisions.items())


def _disturbed(pairs: Sequence[Pair], look: int) -> bool:
    """Too many pairs were left out, once as many as the look wants have been tried."""
    bad = len(pairs) - len(good_pairs(pairs))
    return len(pairs) >= look and bad > EXCLUDED_LIMIT * len(pairs)


def _as_disturbed(plan: AbPlan, so_far: Sequence[RunMetrics]) -> AbPlan:
    """The plan for the next pair: of a kind for both sides, as others take the CPUs or do not."""
    sleep = should_sleep(so_far, os.environ, plan.a.env, plan.b.env)
    return replace(plan, options=replace(plan.options, threads_sleep=sleep)) if sleep else plan


def _warmed_up(
    plan: AbPlan, session: BenchSession, notice: Notice
) -> tuple[AbPlan, list[RunMetrics]]:
    """Runs that fill caches, prove that the command works before time is spent on it, and show how
    many steps fit into the budget: the plan with that, and these runs."""
    so_far: list[RunMetrics] = []
    asked = plan.options
    busy = is_busy(os.getloadavg()[0], os.cpu_count())
    known = plan.measures()
    least = steps_for(known[name] for name in plan.thresholds if name in known)
    options = within(asked, plan.budget_s, busy=busy, least_steps=least)
    for arm in (plan.a, plan.b):
        for i in range(plan.warmup_runs):
            notice(f"warm-up run of {arm.name}")
            folder = session.folder / f"runs/warmup{i}-{arm.name}"
            now = _as_disturbed(replace(plan, options=options), so_far).options
            run = measure_run(arm, now, Place(folder))
            check_finished(run, folder, options)
            plan.gates(run)
            so_far.append(run)
            if arm is plan.a and i == 0:
                options = like(options, asked, run)
                for remark in said(asked, options):
                    notice(remark)
    _say_if_too_short(plan, so_far, notice)
    return replace(plan, options=options if plan.warmup_runs else asked), so_far


def _say_if_too_short(plan: AbPlan, so_far: Sequence[RunMetrics], notice: Notice) -> None:
    """What the fewest runs that can decide take, where the budget has no time for them."""
    if plan.budget_s is None or not so_far:
        return
    took_s = [run.duration_s or 0.0 for run in so_far]  # the first one also fills the caches of all
    whole_s = sum(took_s) + 2 * FEWEST_PAIRS * min(took_s)
    if whole_s > plan.budget_s:
        notice(
            f"the budget of {plan.budget_s:.0f} s is too short: with {FEWEST_PAIRS} pairs, the"
            f" fewest that can decide, it takes about {whole_s:.0f} s"
        )


def _measure_pair(pair: int, plan: AbPlan, session: BenchSession, notice: Notice) -> Pair:
    """One after the other."""
    done: dict[str, RunMetrics] = {}
    for arm, order, folder in _runs_of(pair, plan, session):
        notice(f"pair {pair + 1}, {arm.name}")
        done[arm.name] = measure_run(arm, _seeded(plan, pair), Place(folder, order, pair))
        check_finished(done[arm.name], folder, plan.options)
    return done[plan.a.name], done[plan.b.name]


def _pair_at_once(
    pair: int, plan: AbPlan, session: BenchSession, notice: Notice, how: Manner
) -> Pair | None:
    """None, and what was measured is set aside, if a command fails that did not fail alone."""
    notice(f"pair {pair + 1}, A and B {how.value}")
    options = replace(_seeded(plan, pair), at_once=True)
    both, swap = _runs_of(pair, plan, session), None
    if how is Manner.SWAPPED:
        swap, options = Swap(), replace(options, threads_sleep=True)
    places = [Place(f, o, pair, swap.side(f) if swap else None) for _, o, f in both]
    arms = [arm for arm, _, _ in both]
    runs = both_at_once(
        *(partial(measure_run, a, options, place) for a, place in zip(arms, places, strict=True))
    )
    if all(run.status == "ok" for run in runs):
        done = {run.arm: run for run in runs}
        return done[plan.a.name], done[plan.b.name]
    notice("at the same time a command fails: one after the other from here on")
    for _, _, folder in both:
        folder.rename(folder.with_name(f"{folder.name}-at-once"))
    return None


def _runs_of(pair: int, plan: AbPlan, session: BenchSession) -> list[tuple[Arm, int, Path]]:
    """The arms of a pair in their order, with the number and the folder of each run."""
    arms = (plan.a, plan.b) if pair % 2 == 0 else (plan.b, plan.a)
    numbered = [(arm, 2 * pair + i) for i, arm in enumerate(arms)]
    return [(arm, n, session.folder / f"runs/{n:03d}-{arm.name}") for arm, n in numbered]


def _seeded(plan: AbPlan, pair: int) -> RunOptions:
    return with_seed_of(plan.options, pair)  # of both: the pair differs in nothing else


def check_finished(run: RunMetrics, folder: Path, options: RunOptions) -> None:
    """MeasurementInvalid if the command of the run failed or took too long."""
    if run.status == "ok":
        return
    how = f"ended with exit code {run.exit_code}"
    if run.status == "timeout":
        how = f"did not end within {options.timeout_s:g} s"
    said = tail(folder / "stderr.log", lines=1)
    lacks = "ModuleNotFoundError" in said  # the Python on the path may be that of Pinchpoint
    other = "name the Python of the program, such as .venv/bin/python; " if lacks else ""
    raise MeasurementInvalid(
        f"{run.arm + ': ' if run.arm else ''}the command {how}" + (f": {said}" if said else ""),
        hint=f"{other}its output is in {folder}",
    )
