"""The page of experiments: predicted against measured, and what was learned."""

from collections.abc import Sequence

from pinchpoint.bench.experiments.ledger import Experiment
from pinchpoint.report.benchmarks.figures import change, change_range
from pinchpoint.report.benchmarks.page import Page, Table


def page(experiments: Sequence[Experiment], title: str) -> Page:
    """One row an experiment, in the order they were made."""
    gains = [e for e in experiments if e.outcome == "gain"]
    return Page(
        title=title,
        headline=_headline(experiments, gains),
        tables=(_table(experiments),),
        warnings=tuple(
            f"{_name(e)} changes the numbers that the program computes"
            for e in gains
            if e.changes_numbers
        ),
        notes=tuple(f"{_name(e)}: {e.why}" for e in experiments),
    )


def _headline(experiments: Sequence[Experiment], gains: Sequence[Experiment]) -> str:
    if not experiments:
        return "no experiments yet"
    if not gains:
        return "nothing tried so far makes it faster"
    best = max(gains, key=lambda e: e.measured_gain or 0.0)
    return f"best: {_name(best)}, {1 + (best.measured_gain or 0.0):.2f} times as fast"


def _table(experiments: Sequence[Experiment]) -> Table:
    return Table(
        "change",
        ("", "outcome", "predicted", "measured", "95 % interval", "as predicted", "pairs"),
        tuple(
            (
                _name(e),
                e.outcome,
                change(e.predicted_gain),
                change(e.measured_gain),
                change_range(e.measured_ci95),
                {True: "yes", False: "no", None: "-"}[e.as_predicted()],
                str(e.pairs),
            )
            for e in experiments
        ),
    )


def _name(e: Experiment) -> str:
    return ", ".join(f"{name}={value}" for name, value in e.knobs.items())
