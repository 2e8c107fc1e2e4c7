"""The regression gate: screen by history, confirm by A against B, say what was decided."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from pinchpoint.bench.ab.result import AbResult
from pinchpoint.bench.baselines import (
    Baseline,
    Entry,
    Gate,
    comparable,
    entry_key,
)
from pinchpoint.bench.baselines.screen import (
    FAILS_ALONE,
    FAILS_CPU,
    FAILS_OF_FEW,
    FEW_SESSIONS,
    levels,
    screen,
)
from pinchpoint.bench.measures import (
    CPU_TIME,
    MEASURES,
    TIMES,
    Better,
    Measure,
)
from pinchpoint.bench.result import AcrossRuns, BenchResult, was_busy
from pinchpoint.bench.words import in_words
from pinchpoint.errors import MeasurementInvalid, NotComparable, UsageError
from pinchpoint.monitor.environment import differences, refusals

SCHEMA = "bench.check/1"
EXIT_CODES = {"pass": 0, "warned": 0, "regressed": 1, "inconclusive": 4}


class CheckItem(msgspec.Struct, frozen=True, kw_only=True):
    """One measure against its history, and side by side with the base where that was measured;
    ratios are of the worsening."""

    name: str
    label: str
    unit: str
    better: str
    gate: str
    verdict: str  # pass, suspect, regressed, inconclusive; shown
    why: str
    value: float | None
    center: float | None = None
    change_ratio: float | None = None
    bound_ratio: float | None = None
    threshold_ratio: float | None = None
    threshold_abs: float | None = None  # in the unit, where the gate was given so
    sessions: int = 0
    level_changes: tuple[dict[str, Any], ...] = ()
    # Of the pairs with the base, null without them; the figures above are of past sessions.
    base_value: float | None = None
    now_value: float | None = None
    base_change_ratio: float | None = None
    base_ci95_ratio: tuple[float, float] | None = None
    improved: bool = False  # better than the base, for certain; the verdict is a pass
    decided_by: tuple[str, ...] = ()  # in place of this wall time, where others took the CPUs


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """The whole gate."""

    schema: str = SCHEMA
    session_id: str
    bench_id: str
    verdict: str  # pass, warned, regressed, inconclusive
    why: str
    items: tuple[CheckItem, ...]
    confirmation: AbResult | None = None
    warnings: tuple[str, ...] = ()
    forced: bool = False

    @property
    def exit_code(self) -> int:
        """0 pass or warned, 1 regressed, 4 inconclusive."""
        return EXIT_CODES[self.verdict]


def check(
    result: BenchResult,
    baseline: Baseline,
    *,
    measures: Mapping[str, Measure] = MEASURES,
    fails_alone: float = FAILS_ALONE,
    force: bool = False,
) -> CheckResult:
    """Compare a session with the baseline.

    Raises NotComparable if the machines differ in what matters (unless ``force``),
    MeasurementInvalid if no run is valid, UsageError if the baseline does not know the benchmark.
    """
    warnings = _comparable(result, baseline, force)
    entries = baseline.entries.get(entry_key(result))
    if entries is None:
        raise UsageError(
            f"the baseline has no session of this command ({result.bench_id}); a command with "
            "other arguments is another benchmark",
            hint="measure it once as it should be, and add it: pinchpoint bench check --update",
        )
    found = comparable(result, measures)
    if not found:
        reasons = sorted({r for run in result.runs for r in run.invalid_reasons})
        raise MeasurementInvalid(
            f"none of {len(result.runs)} runs is valid: {'; '.join(reasons) or 'they failed'}",
            hint="see metrics.json of each run",
        )
    items = tuple(
        _item(
            entry, measures.get(name) or _unknown(name, entry), found.get(name), result, fails_alone
        )
        for name, entry in entries.items()
    )
    items = _doubted(items, result)
    verdict, why = overall(items)
    return CheckResult(
        session_id=result.session_id,
        bench_id=result.bench_id,
        verdict=verdict,
        why=why,
        items=items,
        warnings=(*result.warnings, *warnings),
        forced=force,
    )


def _doubted(items: tuple[CheckItem, ...], result: BenchResult) -> tuple[CheckItem, ...]:
    """Wall time against a history fails nothing where it cannot be compared: on a busy machine; or
    with too few sessions to know how they differ, unless the CPU time of a step is worse as well.
    Pairs with the base decide there.
    """
    cpu = next((item for item in items if item.name == CPU_TIME), None)
    on_host = all(run.steps is None or run.steps.clock == "host" for run in result.runs)
    busy = was_busy(result)
    if not on_host or (not busy and cpu is not None and _is_worse(cpu)):
        return items
    return tuple(
        msgspec.structs.replace(item, verdict="suspect", why=f"{item.why}; {_why(item, busy, cpu)}")
        if item.name in TIMES
        and item.verdict == "regressed"
        and (busy or (item.sessions < FEW_SESSIONS and (item.change_ratio or 0) < FAILS_OF_FEW))
        else item
        for item in items
    )


def _is_worse(cpu: CheckItem) -> bool:
    """Beyond what sessions of this benchmark differ by, as far as there are enough to know."""
    if cpu.change_ratio is None:
        return False
    known = cpu.sessions >= FEW_SESSIONS
    return cpu.change_ratio > (max(cpu.bound_ratio or 0, FAILS_CPU) if known else FAILS_OF_FEW)


def _why(item: CheckItem, busy: bool, cpu: CheckItem | None) -> str:
    where = "the machine is busy" if busy else f"after {item.sessions} sessions"
    said = f"{where}, times of other hours decide nothing"
    if cpu is not None and cpu.change_ratio is not None:
        said += f", and the CPU time of a step is {in_words(cpu.change_ratio)}"
    return f"{said}; --base COMMAND measures both side by side"


def suspects(result: CheckResult) -> dict[str, float]:
    """Measures that a confirmation should gate, with their thresholds."""
    return {
        item.name: item.threshold_ratio or item.bound_ratio or 0.05
        for item in result.items
        if item.gate == "fail"
        and item.verdict in ("suspect", "regressed", "inconclusive")
        and item.change_ratio is not None
    }


def fails(entries: Mapping[str, Entry], gates: Mapping[str, Gate]) -> dict[str, float]:
    """Threshold by measure of what may fail, for pairs without a look at the history."""
    found = {}
    for name, entry in entries.items():
        level = [m.value for m in entry.present_level() if m.value > 0]
        asked = gates[name].threshold if name in gates else entry.threshold
        action = gates[name].action if name in gates else entry.gate
        if action == "fail" and asked is not None and level:
            found[name] = asked.as_ratio(float(np.median(level)))
    return found


def overall(items: tuple[CheckItem, ...]) -> tuple[str, str]:
    """The worst of the gated measures, with the sentence that goes with it."""
    failing = [i for i in items if i.gate == "fail"]
    for verdict, said in (
        ("regressed", "regressed"),
        ("suspect", "inconclusive"),
        ("inconclusive", "inconclusive"),
    ):
        bad = [i for i in failing if i.verdict == verdict]
        if bad:
            return said, reasons(bad)
    warned = [i for i in items if i.gate == "warn" and i.verdict in ("regressed", "suspect")]
    if warned:
        return "warned", reasons(warned)
    if not failing:
        return "pass", "nothing is gated"
    return "pass", f"{len(failing)} gated measure{'s are' if failing[1:] else ' is'} not worse"


def reasons(items: Sequence[CheckItem]) -> str:
    """One reason a measure; those that share one are named together."""
    labels: dict[str, list[str]] = {}
    for item in items:
        labels.setdefault(item.why, []).append(item.label)
    return "; ".join(f"{' and '.join(names)}: {why}" for why, names in labels.items())


def _unknown(name: str, entry: Entry) -> Measure:
    """A measure of the baseline that this session was not asked for."""
    better: Better = "higher" if entry.better == "higher" else "lower"
    return Measure(name, entry.unit, better, name, lambda run: None)


def _item(
    entry: Entry,
    measure: Measure,
    found_here: AcrossRuns | None,
    result: BenchResult,
    fails_alone: float,
) -> CheckItem:
    value = found_here.median if found_here else None
    item = CheckItem(
        name=measure.name,
        label=measure.label,
        unit=entry.unit,
        better=entry.better,
        gate=entry.gate,
        verdict="inconclusive",
        why="this session does not give it",
        value=value,
    )
    if value is None:
        return item
    too_few = measure.too_few(result.runs[0]) if entry.gate != "show" else None
    if too_few:
        return msgspec.structs.replace(item, why=too_few)
    runs = found_here.values if found_here else ()
    found = screen(value, entry, fails_alone=fails_alone, runs=runs)
    threshold = entry.threshold if found.center else None
    return msgspec.structs.replace(
        item,
        verdict="shown" if entry.gate == "show" else found.verdict,
        why=found.why,
        center=found.center,
        change_ratio=found.change_ratio,
        bound_ratio=found.bound_ratio,
        threshold_ratio=threshold.as_ratio(found.center or 0.0) if threshold else None,
        threshold_abs=threshold.absolute if threshold else None,
        sessions=found.sessions,
        level_changes=tuple(_level(entry, p.at, p.before, p.after) for p in levels(entry, value)),
    )


def _level(entry: Entry, at: int, before: float, after: float) -> dict[str, Any]:
    medians = entry.session_medians
    where = medians[at] if at < len(medians) else None
    return {
        "session_id": where.session_id if where else None,
        "utc": where.utc if where else "now",
        "commit": where.commit if where else None,
        "before": before,
        "after": after,
    }


def _comparable(result: BenchResult, baseline: Baseline, force: bool) -> list[str]:
    found = differences(baseline.env, result.environment, stored=True)
    forbidding = refusals(found)
    if forbidding and not force:
        first = "; ".join(d.in_words("in the baseline", "here") for d in forbidding[:3])
        raise NotComparable(
            f"the baseline is of another machine or set-up: {first}",
            hint="compare on the same node with bench ab, start a baseline here, or --force",
        )
    return [d.in_words("in the baseline", "here") for d in found]
