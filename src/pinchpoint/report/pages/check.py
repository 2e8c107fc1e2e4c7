"""The page of the regression gate."""

from dataclasses import replace

from pinchpoint.bench.ab.result import AbResult, MeasureResult
from pinchpoint.bench.baselines import GATES
from pinchpoint.bench.baselines.check import CheckItem, CheckResult
from pinchpoint.bench.baselines.screen import FEW_SESSIONS, LEAST_CHANGE
from pinchpoint.bench.words import in_words
from pinchpoint.report.blocks import Fact, Table
from pinchpoint.report.pages import ab as ab_page
from pinchpoint.report.pages.result import (
    Case,
    Outcome,
    ResultPage,
    figure,
    table,
)

_OUTCOMES: dict[str, Outcome] = {
    "regressed": "fail",
    "suspect": "inconclusive",
    "inconclusive": "inconclusive",
}


_FROM = "counts as worse from"
_ROUNDING = 1e-9  # of a ratio


def page(result: CheckResult) -> ResultPage:
    """Gated measures first, then those that are only shown. Where pairs judged, their figures: what
    past sessions had stands in a note, as it decides nothing then."""
    items = sorted(result.items, key=lambda i: GATES.index(i.gate))
    ungated = [i for i in items if i.gate == "show"]
    judged = [i for i in items if i.gate != "show"]
    tables = [_table(judged)] if judged else []
    tables += [_shown(ungated)] if ungated else []
    notes = tuple(note for i in items for note in _levels(i))
    if result.confirmation is None:
        notes = (*_past(items), *_from_what(judged), *notes)
    else:
        paired = [i for i in items if i.base_value is not None]
        gated = [i for i in items if i.base_value is None and i.gate != "show"]  # by their history
        instead = {name for i in paired for name in i.decided_by}
        decided = [m for m in result.confirmation.measures if m.name in instead]
        known = {i.name for i in (*paired, *gated)} | instead
        shown = [m for m in result.confirmation.measures if m.name not in known]
        tables = [_paired(paired, result.confirmation)]
        tables += [_instead(decided)] if decided else []
        tables += [_table(gated)] if gated else []
        tables += [_without_gate(shown)] if shown else []
        why = _from_what(gated)
        notes = (*_past_values(paired), *why, *ab_page.page(result.confirmation).notes, *notes)
    return ResultPage(
        title=f"check of {result.bench_id}" + (" (forced)" if result.forced else ""),
        verdict=result.verdict,
        headline=result.why,
        tables=tuple(tables),
        warnings=result.warnings,
        notes=notes,
        cases=tuple(_case(i) for i in items if i.gate != "show"),
        next_command=_next(result),
    )


def _table(items: list[CheckItem]) -> Table:
    """What has a gate, against past sessions."""
    rows = tuple(
        (
            i.label,
            figure(i.center, i.unit),
            figure(i.value, i.unit),
            in_words(i.change_ratio, i.better),
            _gate(i),
            i.verdict,
        )
        for i in items
    )
    made = table("with a gate", ("", "before", "now", "now is", "gate", "verdict"), rows)
    return replace(made, below=tuple(map(_from_here, items)))


def _shown(items: list[CheckItem]) -> Table:
    """What has none."""
    return table(
        "without a gate",
        ("", "before", "now", "now is"),
        tuple(
            (
                i.label,
                figure(i.center, i.unit),
                figure(i.value, i.unit),
                in_words(i.change_ratio, i.better),
            )
            for i in items
        ),
    )


def _from_here(item: CheckItem) -> tuple[Fact, ...]:
    value = _worse_from(item)
    return () if value is None else (Fact("", f"{_FROM} {figure(value, item.unit)} on"),)


def _worse_from(item: CheckItem) -> float | None:
    """The value from which on a session counts as worse than the past ones."""
    if item.center is None or item.bound_ratio is None:
        return None
    more = 1 + item.bound_ratio
    return item.center * more if item.better == "lower" else item.center / more


def _from_what(items: list[CheckItem]) -> tuple[str, ...]:
    """What this limit is, why it is where it is, and what brings it closer."""
    known = [i for i in items if i.gate != "show" and i.bound_ratio is not None]
    if not known:
        return ()
    said = f"{_FROM}: half of the gate away from the past sessions"
    wide = [i for i in known if (i.bound_ratio or 0) > _half(i) * (1 + _ROUNDING)]
    if not wide:
        return (said,)
    few = min(i.sessions for i in wide) < FEW_SESSIONS
    why = "the runs of this session differ so much" if few else "past sessions differ so much"
    closer = f"{FEW_SESSIONS} sessions or more, " if few else ""
    which = "" if len(wide) == len(known) else f" ({', '.join(i.label for i in wide)})"
    return (
        f"{said}, or farther{which} as {why} by themselves; {closer}longer runs, a quieter machine"
        " or a base to run in pairs with bring it closer",
    )


def _half(item: CheckItem) -> float:
    return max(LEAST_CHANGE, (item.threshold_ratio or 0) / 2)


def _paired(items: list[CheckItem], found: AbResult) -> Table:
    """What decides: pairs of runs, the base and the program here."""
    rows = tuple(
        (
            i.label,
            figure(i.base_value, i.unit),
            figure(i.now_value, i.unit),
            in_words(i.base_change_ratio, i.better),
            _gate(i),
            i.verdict,
        )
        for i in items
    )
    by_name = {m.name: m for m in found.measures}
    commit = found.arms.get("A", {}).get("params", {}).get("commit")
    base = f"commit {str(commit)[:10]}" if commit else "the base"
    left = f", {found.pairs_excluded} left out" if found.pairs_excluded else ""
    title = f"{found.pairs_measured} pairs of runs with {base}{left}"
    made = table(title, ("", "base", "now", "now is", "gate", "verdict"), rows)
    return replace(made, below=tuple(ab_page.sureness(by_name[i.name]) for i in items))


def _instead(measures: list[MeasureResult]) -> Table:
    """What decides where wall time cannot, by the gate of that, with how sure it is."""
    made = _side_by_side("decides in place of wall time", measures)
    return replace(made, below=tuple(ab_page.sureness(m) for m in measures))


def _without_gate(measures: list[MeasureResult]) -> Table:
    """The same pairs; intervals are in the document."""
    return _side_by_side("without a gate", measures)


def _side_by_side(title: str, measures: list[MeasureResult]) -> Table:
    return table(
        title,
        ("", "base", "now", "now is"),
        tuple(
            (
                m.label,
                *(figure(side, m.unit) for side in m.sides),
                in_words(m.estimate_ratio, m.better),
            )
            for m in measures
        ),
    )


def _past_values(items: list[CheckItem]) -> list[str]:
    """Of other hours: nothing is decided by them beside pairs."""
    known = [i for i in items if i.center is not None]
    if not known:
        return []
    most = max(i.sessions for i in known)
    values = ", ".join(f"{i.label} {figure(i.center, i.unit)}" for i in known)
    said = f"{_sessions_in_words(most)} in the baseline: {values}"
    return [f"{said}; only the pairs decided, as a machine is faster at one time than at another"]


def _gate(item: CheckItem) -> str:
    """As it was given: ``fail 5 %``, ``warn 10.0 ms``."""
    if item.threshold_abs is not None:
        return f"{item.gate} {figure(item.threshold_abs, item.unit)}"
    return item.gate + (f" {100 * item.threshold_ratio:.3g} %" if item.threshold_ratio else "")


def _past(items: list[CheckItem]) -> list[str]:
    """With how many sessions each measure was compared, those that share a number together."""
    items = [i for i in items if i.center is not None]
    counts = sorted({i.sessions for i in items})
    if not items:
        return []
    if len(counts) == 1:
        return [f"compared with {_sessions_in_words(counts[0])}"]
    return [
        f"compared with {_sessions_in_words(n)}: "
        + ", ".join(i.label for i in items if i.sessions == n)
        for n in counts
    ]


def _sessions_in_words(count: int) -> str:
    return f"{count} past session" + ("" if count == 1 else "s")


def _case(item: CheckItem) -> Case:
    outcome = _OUTCOMES.get(item.verdict, "pass")
    if item.gate == "warn" and outcome != "pass":
        # Pairs that cannot tell are no reason to annotate each change; the table says so.
        open_pairs = outcome == "inconclusive" and item.base_value is not None
        outcome = "pass" if open_pairs else "warn"
    before, now = item.center, item.value
    if item.base_value is not None:  # those that the reason is about
        before, now = item.base_value, item.now_value
    values = f"{figure(before, item.unit)} to {figure(now, item.unit)}; "
    said = f"{item.label}: {'' if item.decided_by else values}{item.why}"
    return Case(item.name, outcome, said, improved=item.improved and outcome == "pass")


def _levels(item: CheckItem) -> list[str]:
    return [
        f"{item.label} went from {figure(step['before'], item.unit)} to "
        f"{figure(step['after'], item.unit)} at {step['commit'] or step['utc']}"
        for step in item.level_changes
    ]


def _next(result: CheckResult) -> str | None:
    if result.verdict == "inconclusive" and result.confirmation is None:
        return 'pinchpoint bench ab -- "OLD COMMAND" "NEW COMMAND"'
    return None
