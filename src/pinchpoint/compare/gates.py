"""Gates on a comparison: which measure may become how much worse, and whether it did.

Two stored results were not measured side by side, so a gate fails only where a measure is worse
for certain; worse by more than the threshold without that is inconclusive.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from pinchpoint.bench.measures import Measure, Threshold, parse_gate
from pinchpoint.errors import UsageError

Outcome = Literal["pass", "fail", "inconclusive"]


class Gated(msgspec.Struct, frozen=True, kw_only=True):
    """One measure under a gate; ratios are of the worsening: positive means that B is worse."""

    name: str
    label: str
    threshold_ratio: float
    change_ratio: float | None
    outcome: Outcome
    why: str
    better: str = "lower"


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate is about; ``worse``: for certain, more than chance."""

    name: str
    label: str
    a: float  # for thresholds in a unit
    change_ratio: float | None  # null: not known
    worse: bool
    why_unknown: str = ""
    better: str = "lower"


def judged(
    compared: Sequence[Compared], asked: Iterable[str], measures: Mapping[str, Measure]
) -> tuple[Gated, ...]:
    """Every gate on everything that has its measure; UsageError where nothing has."""
    outcomes = []
    for text in asked:
        name, threshold = parse_gate(text, dict(measures))
        found = [one for one in compared if one.name == name]
        if not found:
            known = ", ".join(sorted({one.name for one in compared})) or "none"
            raise UsageError(
                f"--fail {text}: not in both of the two", hint=f"measures of both: {known}"
            )
        outcomes += [_outcome(one, threshold) for one in found]
    return tuple(outcomes)


def _outcome(one: Compared, threshold: Threshold) -> Gated:
    limit, change = threshold.as_ratio(one.a), one.change_ratio
    outcome: Outcome = "pass"
    if change is None:
        outcome, why = "inconclusive", one.why_unknown
    elif change <= limit:
        why = f"within {100 * limit:.3g} %"
    elif one.worse:
        outcome, why = "fail", f"worse by more than {100 * limit:.3g} %"
    else:
        outcome, why = "inconclusive", "worse by more than that, which may be chance"
    return Gated(
        name=one.name,
        label=one.label,
        threshold_ratio=limit,
        change_ratio=change,
        outcome=outcome,
        why=why,
        better=one.better,
    )


def exit_code(gates: Sequence[Gated]) -> int:
    """1: one fails; 4: one is inconclusive; 0."""
    outcomes = {gate.outcome for gate in gates}
    return 1 if "fail" in outcomes else 4 if "inconclusive" in outcomes else 0
