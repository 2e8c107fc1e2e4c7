"""The regression gate: screen by history, confirm by A against B, say what was decided."""

from collections.abc import Mapping
from typing import Any

import msgspec

from pinchpoint.bench.ab.result import AbResult
from pinchpoint.bench.baselines import Baseline, Entry, entry_key
from pinchpoint.bench.baselines.history import FAILS_ALONE, levels, screen
from pinchpoint.bench.measures import MEASURES, Better, Measure
from pinchpoint.bench.result import AcrossRuns, BenchResult, across_runs
from pinchpoint.errors import MeasurementInvalid, NotComparable, UsageError
from pinchpoint.monitor.environment import differences, refusals

SCHEMA = "bench.check/1"
EXIT_CODES = {"pass": 0, "warned": 0, "regressed": 1, "inconclusive": 4}


class CheckItem(msgspec.Struct, frozen=True, kw_only=True):
    """One measure against its history; ratios are of the worsening."""

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
    sessions: int = 0
    level_changes: tuple[dict[str, Any], ...] = ()


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
    found = across_runs(result.runs, measures)
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


def confirmed(result: CheckResult, ab: AbResult) -> CheckResult:
    """The result after the suspects were measured against the base on the same machine."""
    by_name = {m.name: m for m in ab.measures if m.gated}
    items = tuple(
        msgspec.structs.replace(
            item,
            verdict=by_name[item.name].verdict or item.verdict,
            why=f"measured against the base: {by_name[item.name].estimate_ratio:+.1%}",
        )
        if item.name in by_name
        else item
        for item in result.items
    )
    verdict, why = overall(items)
    return msgspec.structs.replace(result, items=items, verdict=verdict, why=why, confirmation=ab)


def suspects(result: CheckResult) -> dict[str, float]:
    """Measures that a confirmation should gate, with their thresholds."""
    return {
        item.name: item.threshold_ratio or item.bound_ratio or 0.05
        for item in result.items
        if item.gate == "fail"
        and item.verdict in ("suspect", "regressed", "inconclusive")
        and item.change_ratio is not None
    }


def overall(items: tuple[CheckItem, ...]) -> tuple[str, str]:
    """The worst of the gated measures, with the sentence that goes with it."""
    fails = [i for i in items if i.gate == "fail"]
    for verdict, said in (
        ("regressed", "regressed"),
        ("suspect", "inconclusive"),
        ("inconclusive", "inconclusive"),
    ):
        bad = [i for i in fails if i.verdict == verdict]
        if bad:
            return said, "; ".join(f"{i.label}: {i.why}" for i in bad)
    warned = [i for i in items if i.gate == "warn" and i.verdict in ("regressed", "suspect")]
    if warned:
        return "warned", "; ".join(f"{i.label}: {i.why}" for i in warned)
    return "pass", f"{len(fails)} gated measures are as before" if fails else "nothing is gated"


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
    found = screen(value, entry, fails_alone=fails_alone)
    threshold = entry.threshold if found.center else None
    return msgspec.structs.replace(
        item,
        verdict="shown" if entry.gate == "show" else found.verdict,
        why=found.why,
        center=found.center,
        change_ratio=found.change_ratio,
        bound_ratio=found.bound_ratio,
        threshold_ratio=threshold.as_ratio(found.center or 0.0) if threshold else None,
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
