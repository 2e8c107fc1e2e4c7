"""``result.json`` of a comparison (schema ``bench.ab/1``), and how it follows from the pairs."""

from collections.abc import Mapping, Sequence
from math import exp, expm1, log, log1p
from typing import Any

import msgspec
import numpy as np

from pinchpoint.bench.ab.at_once import NOTE as AT_ONCE
from pinchpoint.bench.ab.at_once import SWAPPED_NOTE
from pinchpoint.bench.ab.decision import ALPHA, Decision, in_the_middle, sequential_p
from pinchpoint.bench.ab.pairs import Pair, good_pairs, log_ratios
from pinchpoint.bench.ab.quiet import (
    QUIET_ALPHA,
    TRIM_RATIO,
    QuietDecision,
    decide_quietly,
)
from pinchpoint.bench.measures import OWN_TIME, OWN_WORK, TIMES, Measure
from pinchpoint.bench.metrics import RunMetrics
from pinchpoint.bench.run import Arm, RunOptions, waits
from pinchpoint.bench.statistics.intervals import mean_interval
from pinchpoint.bench.statistics.series import two_modes
from pinchpoint.bench.words import improved, in_words
from pinchpoint.monitor.environment import redacted_command

SCHEMA = "bench.ab/1"
EXCLUDED_LIMIT = 0.2  # of the pairs; more, and the machine is not fit to decide
CLOCK_DIFFERS = 0.02  # median SM clocks this far apart deserve a warning


class MeasureResult(msgspec.Struct, frozen=True, kw_only=True):
    """One measure. Ratios are of the worsening: positive means that B is worse."""

    name: str
    label: str
    unit: str
    better: str
    gated: bool
    a_median: float
    b_median: float
    pairs: int
    estimate_ratio: float
    ci95_ratio: tuple[float, float] | None
    sd_pair_log: float | None
    verdict: str | None = None  # null: shown, not gated
    threshold_ratio: float | None = None
    p: float | None = None  # one-sided, paid for all looks, Holm over the gated measures
    smallest_visible_ratio: float | None = None
    pairs_needed: int | None = None
    improved: bool = False  # B is better, claimed with the same error as a regression
    # Geometric means of the pairs that the estimate is of: their ratio is the estimate, which that
    # of the medians is not. Null in older files.
    a_mean: float | None = None
    b_mean: float | None = None

    @property
    def sides(self) -> tuple[float, float]:
        """A and B as the pairs have them: what is shown beside the estimate."""
        if self.a_mean is None or self.b_mean is None:
            return self.a_median, self.b_median
        return self.a_mean, self.b_mean


class AbResult(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison, with all runs."""

    schema: str = SCHEMA
    session_id: str
    bench_id: str
    verdict: str  # regressed, pass, inconclusive
    why: str
    measures: tuple[MeasureResult, ...]
    arms: dict[str, dict[str, Any]]
    pairs_measured: int
    pairs_excluded: int
    looks: tuple[int, ...]
    alpha: float = ALPHA
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    decided_by: tuple[str, ...] = ()  # measures that decided where a gated wall time could not
    decided: str = ""  # what these say
    advice: tuple[str, ...] = ()  # what would decide, where the verdict is inconclusive
    runs: tuple[RunMetrics, ...] = ()
    alone: tuple[RunMetrics, ...] = ()  # of B with all CPUs, where those of pairs had half of them
    env_sha256: str | None = None
    fix: dict[str, Any] | None = None  # whether a fix worked, where steps were timed


def result_of(
    *,
    arms: tuple[Arm, Arm],
    measures: Mapping[str, Measure],
    pairs: Sequence[Pair],
    decisions: Mapping[str, Decision],
    looks: Sequence[int],
    warnings: Sequence[str],
    options: RunOptions,
) -> AbResult:
    """The document; shown measures follow the gated ones."""
    good = good_pairs(pairs)
    excluded = len(pairs) - len(good)
    gated = [_measure_result(measures[n], good, d, looks) for n, d in decisions.items()]
    shown = [
        _measure_result(m, good, None, looks)
        for n, m in measures.items()
        if n not in decisions and len(log_ratios(good, m)) >= 2
    ]
    undoubted = [m for m in gated if _every_pair_agrees(m, pairs, measures[m.name])]
    verdict, why = _verdict(gated, excluded, len(pairs), undoubted)
    if verdict == "regressed" and not set(TIMES).isdisjoint(decisions):
        why += _of_its_own(good, shown)
    quiet, decided = None, ""
    if verdict == "inconclusive":
        quiet = decide_quietly(good, decisions, measures, looks)
        verdict, decided, why = _by_quiet_measures(quiet, measures, why)
        shown = [_as_decided(m, quiet, good, measures, looks) for m in shown]
    return AbResult(
        session_id=options.session_id,
        bench_id=options.bench_id,
        verdict=verdict,
        why=why,
        measures=(*gated, *shown),
        arms={
            a.name: {"command": redacted_command(a.command), "params": dict(a.params)} for a in arms
        },
        pairs_measured=len(pairs),
        pairs_excluded=excluded,
        looks=tuple(looks),
        warnings=(*warnings, *_warnings(pairs, gated, measures)),
        notes=_notes(good, gated),
        decided_by=quiet.by if quiet else (),
        decided=decided,
        runs=tuple(run for pair in pairs for run in pair),
        env_sha256=options.env_sha256,
    )


def _measure_result(
    measure: Measure, pairs: Sequence[Pair], decision: Decision | None, looks: Sequence[int]
) -> MeasureResult:
    a = [v for v in (measure.get(run) for run, _ in pairs) if v is not None]
    b = [v for v in (measure.get(run) for _, run in pairs) if v is not None]
    d = log_ratios(pairs, measure)
    interval = mean_interval(d)
    a_mean, b_mean = _means(measure, pairs)
    return MeasureResult(
        name=measure.name,
        label=measure.label,
        unit=measure.unit,
        better=measure.better,
        gated=decision is not None,
        a_median=float(np.median(a)),
        b_median=float(np.median(b)),
        pairs=len(d),
        estimate_ratio=expm1(float(d.mean())),
        ci95_ratio=None if interval is None else (expm1(interval[0]), expm1(interval[1])),
        sd_pair_log=float(d.std(ddof=1)) if len(d) > 1 else None,
        verdict=decision.verdict if decision else None,
        threshold_ratio=decision.threshold_ratio if decision else None,
        p=decision.p if decision else None,
        smallest_visible_ratio=decision.smallest_visible_ratio if decision else None,
        pairs_needed=decision.pairs_needed if decision else None,
        improved=sequential_p(-d, looks) <= ALPHA,
        a_mean=a_mean,
        b_mean=b_mean,
    )


def _means(
    measure: Measure, pairs: Sequence[Pair], trim_ratio: float = 0.0
) -> tuple[float | None, float | None]:
    """Geometric means of both sides, over the pairs that the estimate is the mean of."""
    both = [(measure.get(a), measure.get(b)) for a, b in pairs]
    logs = np.array([(log(a), log(b)) for a, b in both if a and b and a > 0 and b > 0])
    if not len(logs):
        return None, None
    worse = logs[:, 1] - logs[:, 0] if measure.better == "lower" else logs[:, 0] - logs[:, 1]
    a_log, b_log = logs[in_the_middle(worse, trim_ratio)].mean(axis=0)
    return exp(a_log), exp(b_log)


def _as_decided(
    shown: MeasureResult,
    quiet: QuietDecision,
    pairs: Sequence[Pair],
    measures: Mapping[str, Measure],
    looks: Sequence[int],
) -> MeasureResult:
    """A measure that decided, as it did: its table says what the answer says."""
    decision = quiet.decisions.get(shown.name) if shown.name in quiet.by else None
    if decision is None:
        return shown
    a_mean, b_mean = _means(measures[shown.name], pairs, TRIM_RATIO)
    d = log_ratios(pairs, measures[shown.name])
    return msgspec.structs.replace(
        shown,
        estimate_ratio=decision.estimate_ratio,
        ci95_ratio=decision.ci95_ratio,
        improved=sequential_p(-d, looks, trim_ratio=TRIM_RATIO) <= QUIET_ALPHA,
        a_mean=a_mean,
        b_mean=b_mean,
    )


def _every_pair_agrees(measure: MeasureResult, pairs: Sequence[Pair], asked: Measure) -> bool:
    """Whether leaving out disturbed pairs cannot have made the regression: they show it too."""
    every = log_ratios(pairs, asked)
    return (
        measure.verdict == "regressed"
        and len(every) == len(pairs)
        and float(every.min()) > log1p(measure.threshold_ratio or 0.0)
    )


def _verdict(
    gated: Sequence[MeasureResult],
    excluded: int,
    pairs: int,
    undoubted: Sequence[MeasureResult],
) -> tuple[str, str]:
    if excluded > EXCLUDED_LIMIT * pairs:
        why = f"{excluded} of {pairs} pairs were disturbed"
        if not undoubted:
            return "inconclusive", why
        said = ", ".join(f"{m.label} {in_words(m.estimate_ratio, m.better)}" for m in undoubted)
        return "regressed", f"{said}; {why}, and show it as well"
    regressed = [m for m in gated if m.verdict == "regressed"]
    if regressed:
        said = ", ".join(f"{m.label} {in_words(m.estimate_ratio, m.better)}" for m in regressed)
        return "regressed", said
    still_open = [m for m in gated if m.verdict == "inconclusive"]
    if still_open:
        labels: dict[str, list[str]] = {}
        for m in still_open:
            labels.setdefault(_why_open(m), []).append(m.label)
        each = (f"{' and '.join(names)}: {text}" for text, names in labels.items())
        return "inconclusive", "; ".join(each)
    better = [m for m in gated if m.improved]
    if better:
        return "pass", ", ".join(f"{m.label} {improved(m.estimate_ratio)}" for m in better)
    return "pass", "no change as large as the threshold"


def _of_its_own(pairs: Sequence[Pair], shown: Sequence[MeasureResult]) -> str:
    """Beside a wall time, where others took the CPUs, what the step takes without them: a longer
    step is interrupted more often, and 30 % more work took 3.8 × as long at load 11 on 2 CPUs."""
    own = next((m for m in shown if m.name in (OWN_TIME, OWN_WORK)), None)
    if own is None or not any(run.threads_sleep for pair in pairs for run in pair):
        return ""
    return f" ({own.label} {in_words(own.estimate_ratio)})"


def _by_quiet_measures(
    found: QuietDecision, measures: Mapping[str, Measure], why: str
) -> tuple[str, str, str]:
    """The verdict of the quiet measures where wall time is open, what they say, and all of why."""
    said = ", ".join(
        f"{measures[name].label} {_worse_or_not(found.decisions[name])}" for name in found.by
    )
    if found.verdict in ("regressed", "pass"):
        return found.verdict, said, f"{said}; wall time varies too much here to tell ({why})"
    open_ones = ", ".join(
        f"{measures[n].label} {in_words(d.estimate_ratio)}" for n, d in found.decisions.items()
    )
    return "inconclusive", "", f"{why}; {open_ones}" if open_ones else why


def _worse_or_not(decision: Decision) -> str:
    if decision.verdict == "regressed":
        return in_words(decision.estimate_ratio)
    return f"less than {100 * decision.threshold_ratio:.3g} % worse"


def _why_open(measure: MeasureResult) -> str:
    sees = measure.smallest_visible_ratio
    needs = measure.pairs_needed
    text = f"{measure.pairs} pairs"
    if sees is not None:
        seen = f"from {100 * sees:.1f} %" if sees < 1 else "only above 100 %"
        text += f" on this machine show changes {seen}"
    wanted = measure.threshold_ratio or 0.0
    many = f"about {needs}" if needs else "over 400"
    return f"{text}; to show {100 * wanted:.3g} % takes {many} pairs"


def _warnings(
    pairs: Sequence[Pair], gated: Sequence[MeasureResult], measures: Mapping[str, Measure]
) -> list[str]:
    reasons = sorted({r for pair in pairs for run in pair for r in run.invalid_reasons})
    found = [f"runs left out: {reason}" for reason in reasons]
    for m in gated:
        for side in (0, 1):
            values = [measures[m.name].get(pair[side]) for pair in good_pairs(pairs)]
            modes = two_modes(np.array([v for v in values if v is not None]))
            if modes:
                found.append(
                    f"{m.label} of {'AB'[side]} has two speeds, {100 * modes.gap_ratio:.0f} %"
                    f" apart ({modes.count_low} and {modes.count_high} runs): pin CPUs, NUMA node,"
                    " clocks or the algorithm choice"
                )
    return found


def _notes(pairs: Sequence[Pair], gated: Sequence[MeasureResult]) -> tuple[str, ...]:
    notes = list(_switches(pairs))
    if any(run.threads_sleep for pair in pairs for run in pair):
        notes.append(waits.NOTE)
    together = [run for pair in pairs for run in pair if run.at_once]
    if any(not run.swapped for run in together):
        notes.append(AT_ONCE)
    if any(run.swapped for run in together):
        notes.append(SWAPPED_NOTE)
    clocks = [_clock_log_ratio(a, b) for a, b in pairs]
    known = [c for c in clocks if c is not None]
    if not known:
        return tuple(notes)
    clock = float(np.mean(known))
    if abs(clock) > log1p(CLOCK_DIFFERS):
        notes.append(f"the SM clock of B was {expm1(clock):+.1%} against A")
    for m in gated:
        time = log1p(m.estimate_ratio)
        if m.verdict == "regressed" and time + clock < log1p((m.threshold_ratio or 0) / 2):
            notes.append(f"{m.label}: clock, not code: B takes no more GPU cycles than A")
    return tuple(notes)


def _clock_log_ratio(a: RunMetrics, b: RunMetrics) -> float | None:
    """ln of B's over A's median SM clock, over the devices that both runs used."""
    sides = []
    for run in (a, b):
        clocks = [g.sm_clock_mhz["median"] for g in run.gpu or () if g.sm_clock_mhz]
        if not clocks:
            return None
        sides.append(float(np.mean(clocks)))
    return log(sides[1] / sides[0])


def _switches(pairs: Sequence[Pair]) -> list[str]:
    """Program switches in which the arms differ, as read at the end of the first pair."""
    if not pairs:
        return []
    a, b = pairs[0][0].program, pairs[0][1].program
    return [
        f"{name}: {a.get(name)} in A, {b.get(name)} in B"
        for name in sorted(set(a) | set(b))
        if a.get(name) != b.get(name) and name != "seed"
    ]
