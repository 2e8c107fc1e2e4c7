"""The sentence that answers whether a fix worked, and what to record where it cannot be told."""

from math import ceil

from pinchpoint.compare.fix import FixOutcome
from pinchpoint.compare.profiles import ProfileComparison
from pinchpoint.diagnosis.rule import MATERIAL_STEP_RATIO
from pinchpoint.report.quantity import in_unit, slower_or_faster, span, time_unit

_ENDS = {
    "worked": "it worked",
    "worked better": "it worked, better than predicted",
    "worked in part": "it worked in part: less is won than was predicted",
    "did not help": "it did not help",
    "cannot tell": "cannot tell, the difference is within what {of} differ by themselves",
}


def _end(outcome: FixOutcome) -> str:
    """The verdict; what varies between recordings is a step, between pairs a run."""
    return _ENDS[outcome.said].format(of="runs" if "pairs" in outcome.clock else "steps")


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
    return f"{predicted}, {measured}{spread}: {_end(outcome)}{_slower(outcome)}{_doubt(outcome)}"


def _slower(outcome: FixOutcome) -> str:
    """By how much a step became longer though a cause went."""
    limit_ns = (1 + MATERIAL_STEP_RATIO) * outcome.before_ns
    if outcome.said != "did not help" or outcome.measured_ns < limit_ns:
        return ""
    return f", the step is {slower_or_faster(outcome.before_ns, outcome.measured_ns)}"


MOST_STEPS = 200  # that a recording is asked for: more make files that nobody wants to open


def cannot_tell(found: ProfileComparison) -> bool:
    """Whether the two steps differ by no more than steps do by themselves."""
    return found.fix is not None and found.fix.said == "cannot tell"


def to_tell(found: ProfileComparison) -> str | None:
    """What to record so that the answer is sure; None where it is, or is about whole runs.

    The interval from step to step narrows with the square root of their number.
    """
    step_ns, half_ns = found.a_step_ns, found.noise_ns
    if not step_ns or found.a.whole_run or not (cannot_tell(found) or found.sure is None):
        return None
    now = min(found.a.steps, found.b.steps)
    again = "pinchpoint run --steps {} for each version"
    if half_ns is None:
        return f"{found.a.steps} and {found.b.steps} complete steps are too few: " + again.format(
            _FEWEST_STEPS
        )
    wanted_ns = MATERIAL_STEP_RATIO * step_ns
    unit = time_unit(step_ns)
    told = f"{in_unit(half_ns, unit)} {unit} ({100 * half_ns / step_ns:.2g} %) a step"
    if found.sure:
        return (
            "the recorded steps do differ, and recording itself may be why: how long they take"
            " without it is not known closely enough. Measure pairs without it (Next)"
        )
    if half_ns <= wanted_ns:
        return (
            f"a change of more than {told} would have shown in the recorded steps. What recording"
            " itself costs, and what differs from run to run, only pairs without it tell (Next)"
        )
    wanted = ceil(now * (half_ns / wanted_ns) ** 2)
    if wanted > MOST_STEPS:
        return (
            f"only a change of more than {told} shows in {now} steps that differ so much: measure"
            " pairs without recording (Next)"
        )
    return (
        f"only a change of more than {told} shows in {now} steps; of"
        f" {100 * MATERIAL_STEP_RATIO:.0f} % in {wanted}: {again.format(wanted)}"
    )


_FEWEST_STEPS = 8  # two of four a side have an interval, half of a short recording is its beginning


def _doubt(outcome: FixOutcome) -> str:
    return f", if both are one program ({outcome.doubt})" if outcome.doubt else ""


def _without_prediction(outcome: FixOutcome) -> str:
    if outcome.said in ("worked", "did not help"):
        return slower_or_faster(outcome.before_ns, outcome.measured_ns)
    return _end(outcome)


def gone_words(outcome: FixOutcome) -> str:
    """``sync-in-loop and host-hotspot are gone``; empty where it is not known what went."""
    if not outcome.fixed:
        return ""
    *others, last = outcome.fixed
    return f"{', '.join(others)} and {last} are gone" if others else f"{last} is gone"
