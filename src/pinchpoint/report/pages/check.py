"""The pages of the regression gate and of a benchmark's history."""

from dataclasses import replace

from pinchpoint.bench.ab.result import AbResult, MeasureResult
from pinchpoint.bench.baselines import GATES, Baseline, Entry
from pinchpoint.bench.baselines.check import CheckItem, CheckResult
from pinchpoint.bench.baselines.screen import levels
from pinchpoint.bench.statistics.series import ChangePoint
from pinchpoint.bench.words import in_words
from pinchpoint.report.blocks import Table
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
_HISTORY_ROWS = 20  # sessions on a screen


def page(result: CheckResult) -> ResultPage:
    """Gated measures first, then those that are only shown. Where pairs judged, their figures: what
    past sessions had stands in a note, as it decides nothing then."""
    items = sorted(result.items, key=lambda i: GATES.index(i.gate))
    tables = [_table(items)]
    notes = tuple(note for i in items for note in _levels(i))
    if result.confirmation is None:
        notes = (*_past(items), *notes)
    else:
        paired = [i for i in items if i.base_value is not None]
        gated = [i for i in items if i.base_value is None and i.gate != "show"]  # by their history
        shown = [m for m in result.confirmation.measures if not m.gated]
        tables = [_paired(paired, result.confirmation)]
        tables += [_table(gated)] if gated else []
        tables += [_without_gate(shown)] if shown else []
        notes = (*_past_values(paired), *ab_page.page(result.confirmation).notes, *notes)
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
    return table(
        "measure",
        ("", "before", "now", "now is", "bound", "gate", "verdict"),
        tuple(
            (
                i.label,
                figure(i.center, i.unit),
                figure(i.value, i.unit),
                in_words(i.change_ratio, i.better),
                "-" if i.bound_ratio is None else f"{100 * i.bound_ratio:.1f} %",
                _gate(i),
                "" if i.gate == "show" else i.verdict,
            )
            for i in items
        ),
    )


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


def _without_gate(measures: list[MeasureResult]) -> Table:
    """The same pairs; intervals are in the document."""
    return table(
        "without a gate",
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
    return [f"{_sessions_in_words(most)} of other hours, which decided nothing here: {values}"]


def _gate(item: CheckItem) -> str:
    return item.gate + (f" {100 * item.threshold_ratio:.3g} %" if item.threshold_ratio else "")


def _past(items: list[CheckItem]) -> list[str]:
    """With how many sessions each measure was compared, those that share a number together."""
    counts = sorted({i.sessions for i in items})
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
        outcome = "warn"
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
        return 'pinchpoint bench ab -- "OLD COMMAND" "NEW COMMAND" (same node, interleaved)'
    return None


def history_page(baseline: Baseline) -> ResultPage:
    """Every benchmark's sessions with the changes of level."""
    tables, notes = [], []
    for key, entries in baseline.entries.items():
        for name, entry in entries.items():
            tables.append(_sessions(f"{key.split('|')[0]} {name}", entry))
            notes += [
                f"{name}: {figure(p.before, entry.unit)} to {figure(p.after, entry.unit)} from "
                f"session {p.at + 1} ({in_words(_worsening(p, entry), entry.better)}, p {p.p:.1g})"
                for p in levels(entry)
            ]
    return ResultPage(
        title="history",
        headline=f"{len(tables)} measures since {baseline.created_utc[:10]}",
        tables=tuple(tables),
        notes=tuple(notes),
    )


def _worsening(p: ChangePoint, entry: Entry) -> float:
    return p.change_ratio if entry.better == "lower" else 1 / (1 + p.change_ratio) - 1


def _sessions(title: str, entry: Entry) -> Table:
    first = max(0, len(entry.session_medians) - _HISTORY_ROWS)
    rows = [
        (str(first + i + 1), m.utc[:16], (m.commit or "-")[:10], figure(m.value, entry.unit))
        for i, m in enumerate(entry.session_medians[first:])
    ]
    return table(title, ("", "when", "commit", "median"), tuple(rows))
