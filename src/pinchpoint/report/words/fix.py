"""The sentence that answers whether a fix worked."""

from pinchpoint.compare.fix import FixOutcome
from pinchpoint.report.quantity import in_unit, slower_or_faster, span, time_unit

_ENDS = {
    "worked": "it worked",
    "worked better": "it worked, better than predicted",
    "worked in part": "it worked in part: less is won than was predicted",
    "did not help": "it did not help",
    "cannot tell": "cannot tell, the difference is within what steps differ by themselves",
}


def fix_sentence(outcome: FixOutcome) -> str:
    """``predicted 8.64 ms, measured 8.57 (8.51 to 8.63): it worked``."""
    unit = time_unit(outcome.before_ns)
    between = outcome.measured_range_ns
    spread = f" ({span(*between, unit)})" if between else ""
    measured = f"measured {in_unit(outcome.measured_ns, unit)}"
    if outcome.predicted_ns is None:
        said = f"{measured} {unit}{spread}, {in_unit(outcome.before_ns, unit)} before"
        return f"{said}: {_without_prediction(outcome)}{_doubt(outcome)}"
    predicted = f"predicted {in_unit(outcome.predicted_ns, unit)} {unit}"
    return f"{predicted}, {measured}{spread}: {_ENDS[outcome.said]}{_doubt(outcome)}"


def _doubt(outcome: FixOutcome) -> str:
    return f", if both are one program ({outcome.doubt})" if outcome.doubt else ""


def _without_prediction(outcome: FixOutcome) -> str:
    if outcome.said in ("worked", "did not help"):
        return slower_or_faster(outcome.before_ns, outcome.measured_ns)
    return _ENDS[outcome.said]


def fixed_words(outcome: FixOutcome) -> str:
    """Which findings went, in words; empty where that is not known."""
    if not outcome.fixed:
        return ""
    *others, last = outcome.fixed
    return f"{', '.join(others)} and {last}" if others else last
