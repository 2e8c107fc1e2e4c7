"""Gates on what a program does not give: they would pass for ever without a word."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pinchpoint.bench.baselines import Baseline, Gate
    from pinchpoint.bench.measures import Measure
    from pinchpoint.bench.result import BenchResult
    from pinchpoint.report.pages.result import ResultPage


def with_unwatched(
    page: "ResultPage",
    past: "Baseline | None",
    new: "BenchResult",
    gates: "Mapping[str, Gate]",
    measures: "Mapping[str, Measure]",
) -> "ResultPage":
    """The page with a warning for each gate that neither this session nor a past one has a value
    for, and what to gate instead; one that should fail is a case that cannot tell, too. The first
    session says in a note what will be watched from now on."""
    from pinchpoint.bench.baselines import comparable, entry_key
    from pinchpoint.bench.measures import not_given
    from pinchpoint.report.pages.result import Case

    entries = past.entries.get(entry_key(new), {}) if past else {}
    known = {*comparable(new, measures), *entries}
    warnings, cases = list(page.warnings), list(page.cases)
    for name, gate in gates.items():
        if name in known or not new.runs:
            continue
        said = f"{name} watches nothing: no run here gives it"
        why, instead = not_given(measures[name], new.runs[0])
        said += f" ({why})" + (f"; take {instead}" if instead else "")
        warnings.append(f"--{gate.action} {said}")
        if gate.action == "fail":
            cases.append(Case(name, "inconclusive", said))
    watched = [_in_words(gate, measures[n]) for n, gate in gates.items() if n in known]
    notes = page.notes
    if watched and not entries:
        notes = (*notes, f"watched from the next check on: {'; '.join(watched)}")
    return replace(page, warnings=tuple(warnings), cases=tuple(cases), notes=notes)


def _in_words(gate: "Gate", measure: "Measure") -> str:
    """``step time, median (fail 5 %)``."""
    from pinchpoint.report.pages.result import figure

    ratio, absolute = gate.threshold.ratio, gate.threshold.absolute
    least = figure(absolute, measure.unit) if ratio is None else f"{100 * ratio:.3g} %"
    return f"{measure.label} ({gate.action} {least})"
