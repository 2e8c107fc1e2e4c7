"""The page of experiments: predicted against measured, and what was learned."""

from collections import Counter
from collections.abc import Sequence

from pinchpoint.bench.experiments.experiment import Experiment
from pinchpoint.report.blocks import Table
from pinchpoint.report.pages.result import ResultPage, change, change_range, table


def page(experiments: Sequence[Experiment], title: str) -> ResultPage:
    """One row an experiment, in the order they were made."""
    gains = [e for e in experiments if e.outcome == "gain"]
    return ResultPage(
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
    measured = [e for e in experiments if e.outcome in _MEASURED]
    if not measured:
        return f"no verdict yet: {_counted(experiments)}"
    if not gains:
        rest = f"; of the others no verdict: {_counted(experiments)}"
        return "nothing tried so far makes it faster" + rest * (len(measured) < len(experiments))
    best = max(gains, key=lambda e: e.measured_gain or 0.0)
    said = f"best: {_name(best)}, {1 + (best.measured_gain or 0.0):.2f} times as fast"
    judged = [e.as_predicted() for e in measured if e.as_predicted() is not None]
    if judged:
        said += f"; as predicted in {sum(map(bool, judged))} of {len(judged)}"
    return said


_MEASURED = ("gain", "no gain", "loss")


def _counted(experiments: Sequence[Experiment]) -> str:
    """``2 failed, 1 not applied`` of those that say nothing about the knob."""
    counts = Counter(e.outcome for e in experiments if e.outcome not in _MEASURED)
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items())


def _table(experiments: Sequence[Experiment]) -> Table:
    return table(
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
