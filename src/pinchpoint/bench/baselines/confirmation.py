"""The gate after pairs of runs: the program and its base in the same minutes, which decide."""

import msgspec

from pinchpoint.bench.ab.gain import gain_in_words, gains, improved_times, is_own
from pinchpoint.bench.ab.result import AbResult, MeasureResult
from pinchpoint.bench.baselines import BesideBase
from pinchpoint.bench.baselines.check import CheckItem, CheckResult, overall, reasons
from pinchpoint.bench.baselines.screen import may_be_so
from pinchpoint.bench.measures import OWN_TIME, TIMES, Threshold
from pinchpoint.bench.words import in_words, with_range


def confirmed(result: CheckResult, ab: AbResult) -> CheckResult:
    """The result after measures were compared with the base on the same machine, in pairs."""
    by_name = {m.name: m for m in ab.measures if m.gated}
    items = tuple(
        _confirmed(item, by_name[item.name], ab) if item.name in by_name else _warned(item, ab)
        for item in result.items
    )
    items = tuple(without_false_levels(item) for item in items)
    verdict, why = overall(items)
    if verdict == "pass" and (better := gain_in_words(ab)):
        why = f"{better}, against the base; {why}"
    elif verdict == "pass" and (by_pairs := [i for i in items if i.gate == "fail" and i.why]):
        why = f"{why}: {reasons(by_pairs)}"
    return msgspec.structs.replace(result, items=items, verdict=verdict, why=why, confirmation=ab)


def _warned(item: CheckItem, ab: AbResult) -> CheckItem:
    """What warns is judged by the pairs as well, where these give it: a session of another hour
    warns of nothing. Worse by half of the threshold, for certain, is worth a warning."""
    found = next((m for m in ab.measures if m.name == item.name), None)
    if item.gate != "warn" or found is None or found.ci95_ratio is None:
        return item
    if item.center is None:  # a percentile of too few steps: its pairs are of no more
        return item
    base, now = found.sides
    threshold = item.threshold_ratio or 0.0
    if item.threshold_abs is not None:
        threshold = Threshold(absolute=item.threshold_abs).as_ratio(base)
    low, high = found.ci95_ratio
    verdict = "inconclusive"
    if low > 0 and found.estimate_ratio > threshold / 2:
        verdict = "regressed"
    elif high <= threshold:
        verdict = "pass"
    why = f"{_how(found, better=False)} against the base"
    return msgspec.structs.replace(
        item,
        verdict=verdict,
        why=why + (f", which {found.pairs} pairs cannot tell" if verdict == "inconclusive" else ""),
        threshold_ratio=threshold,
        base_value=base,
        now_value=now,
        base_change_ratio=found.estimate_ratio,
        base_ci95_ratio=found.ci95_ratio,
    )


def _confirmed(item: CheckItem, found: MeasureResult, ab: AbResult) -> CheckItem:
    """An item with the verdict of the pairs; of an open wall time, with that of what decided."""
    verdict = found.verdict or item.verdict
    better, instead, own = found in gains(ab), tuple[str, ...](), _own_gain(item, ab)
    open_time = verdict == "inconclusive" and bool(ab.decided_by) and item.name in TIMES
    why = f"{_how(found, better=better)} against the base"
    if own is not None and (open_time or verdict == "pass"):
        verdict, better, instead = "pass", True, (own.name,)
        why = f"{_with_values(own, better=True)} against the base"
    elif open_time:
        verdict, instead = ab.verdict, ab.decided_by
        worse = [m for m in ab.measures if m.name in instead and verdict == "regressed"]
        decided = ", ".join(_with_values(m, better=False) for m in worse) or ab.decided or ab.why
        why = f"its wall time varies too much here to tell; against the base {decided}"
    elif verdict == "inconclusive":
        why = f"{why}, which {found.pairs} pairs here cannot tell"
    else:
        why += _of_its_own(item, ab)
    base, now = found.sides
    return msgspec.structs.replace(
        item,
        verdict=verdict,
        why=why,
        base_value=base,
        now_value=now,
        base_change_ratio=found.estimate_ratio,
        base_ci95_ratio=found.ci95_ratio,
        improved=better,
        decided_by=instead,
    )


def without_false_levels(item: CheckItem) -> CheckItem:
    """A session that read higher in a busier hour is no new level where the pairs saw none."""
    kept = []
    for step in item.level_changes:
        ratio = step["after"] / step["before"] if step["before"] else 1.0
        worsening = (ratio if item.better == "lower" else 1 / (ratio or 1.0)) - 1
        if step["utc"] != "now" or may_be_so(worsening, item.base_ci95_ratio):
            kept.append(step)
    return msgspec.structs.replace(item, level_changes=tuple(kept))


def beside_base(ab: AbResult) -> dict[str, BesideBase]:
    """What the pairs said, by measure, as a baseline keeps it beside the session."""
    commit = ab.arms.get("A", {}).get("params", {}).get("commit")
    return {
        m.name: BesideBase(
            commit=None if commit is None else str(commit),
            change_ratio=m.estimate_ratio,
            ci95_ratio=m.ci95_ratio,
            pairs=m.pairs,
        )
        for m in ab.measures
    }


def _own_gain(item: CheckItem, ab: AbResult) -> MeasureResult | None:
    """What improved in place of a wall time that is not known to have."""
    best = next(iter(gains(ab)), None)
    return best if best is not None and is_own(best) and item.name in TIMES else None


def _with_values(m: MeasureResult, *, better: bool) -> str:
    """``CPU time of a step 24.4 to 28.0 ms, 14.8 % worse (95 %: …)``."""
    base, now = (f"{side:#.3g}".rstrip(".") for side in m.sides)
    return f"{m.label} {base} to {now} {m.unit}, {_how(m, better=better)}"


def _how(m: MeasureResult, *, better: bool) -> str:
    if better:
        return improved_times(m)
    return with_range(m.estimate_ratio, m.ci95_ratio, m.better)


def _of_its_own(item: CheckItem, ab: AbResult) -> str:
    """Beside a wall time what the step takes without others on its CPU: where these are many, 10 %
    more work can cost 50 % more time, as a longer step is interrupted more often."""
    own = next((m for m in ab.measures if m.name == OWN_TIME), None)
    if item.name not in TIMES or own is None:
        return ""
    return f" ({own.label} {in_words(own.estimate_ratio)})"
