"""The page of experiments: predicted against measured, and what was learned."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from pinchpoint.bench.experiments.experiment import Experiment
from pinchpoint.report.blocks import Fact, Table
from pinchpoint.report.pages.result import ResultPage, table


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
        notes=(*_came_true(experiments), *(f"{_name(e)}: {e.why}" for e in experiments)),
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
    later = experiments[experiments.index(best) + 1 :]
    same = (best.bench_id, _name(best))
    again = [e.outcome for e in later if (e.bench_id, _name(e)) == same]
    if again and again[-1] != "gain":
        said += f"; measured again: {again[-1]}"
    judged = [e.as_predicted() for e in _latest(measured) if e.as_predicted() is not None]
    if judged:
        said += f"; as predicted in {sum(map(bool, judged))} of {len(judged)}"
    return said


NEAR_RATIO = 0.10  # of the step after the change: what predictions are held to


def _came_true(experiments: Sequence[Experiment]) -> list[str]:
    """Of how many changes the step was as predicted, within a tenth; the sum of a ledger.

    Those on top of others are left out: the prediction was for the program as it was.
    """
    measured = [e for e in experiments if e.outcome in _MEASURED and not e.on_top_of]
    both = [
        (1 + e.predicted_gain) / (1 + e.measured_gain)  # measured over predicted step
        for e in _latest(measured)
        if e.predicted_gain is not None and e.measured_gain is not None
    ]
    if not both:
        return []
    near = sum(abs(ratio - 1) <= NEAR_RATIO for ratio in both)
    said = f"the step after a change was predicted within {100 * NEAR_RATIO:.0f} % in {near} of"
    said += f" {len(both)}"
    return [f"{said}; off by {100 * median(abs(r - 1) for r in both):.1f} % at the median"]


def _latest(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Each change of a program once: a search measures again what it kept."""
    return list({(e.bench_id, _name(e), e.predicted_gain): e for e in experiments}.values())


_MEASURED = ("gain", "no gain", "loss")


def _counted(experiments: Sequence[Experiment]) -> str:
    """``2 failed, 1 not applied`` of those that say nothing about the knob."""
    counts = Counter(e.outcome for e in experiments if e.outcome not in _MEASURED)
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items())


def _table(experiments: Sequence[Experiment]) -> Table:
    made = table(
        "change",
        ("", "outcome", "predicted", "measured", "as predicted", "pairs"),
        tuple(
            (
                _name(e),
                e.outcome,
                _times(e.predicted_gain),
                _times(e.measured_gain),
                _as_predicted(e),
                str(e.pairs),
            )
            for e in experiments
        ),
    )
    return replace(made, below=tuple(map(_interval, experiments)))


def _as_predicted(e: Experiment) -> str:
    """Nothing of one that cannot tell: its interval holds any prediction."""
    met = e.as_predicted() if e.outcome in _MEASURED else None
    return "-" if met is None else "yes" if met else "no"


def _interval(e: Experiment) -> tuple[Fact, ...]:
    """Below its row, as a log has no room beside it."""
    if e.measured_ci95 is None:
        return ()
    low, high = map(_times, e.measured_ci95)
    return (Fact("", f"95 %: {low} to {high} as fast"),)


def _times(gain: float | None) -> str:
    """How many times as fast: in one form, as a prediction stands beside what was measured."""
    return "-" if gain is None else f"{1 + gain:.2f} ×"


def _name(e: Experiment) -> str:
    said = ", ".join(f"{name}={value}" for name, value in e.knobs.items())
    below = ", ".join(f"{name}={value}" for name, value in e.on_top_of.items())
    return f"{said} (on top of {below})" if below else said
