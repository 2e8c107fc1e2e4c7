"""What a report predicted of a change, held against what ``bench ab`` measured."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from pinchpoint.api import diagnose
from pinchpoint.bench.ab.result import AbResult
from pinchpoint.bench.measures import STEP_TIME
from pinchpoint.compare.fix import FixOutcome, fix_outcome
from pinchpoint.errors import PinchpointError, UsageError
from pinchpoint.replacing import read_bounded
from pinchpoint.report.documents.report import Report, decode

_MS = 1e6  # nanoseconds


@dataclass(frozen=True)
class Promise:
    """The step after the change as a share of the step before: expected, least, most."""

    fixed: str
    ratio: float
    range_ratio: tuple[float, float]


def read_report(path: Path) -> Report:
    """A report as ``diagnose --json`` writes it, or what is said of a run folder or a recording.

    UsageError, with how to make one, for what is neither.
    """
    if path.is_dir():
        return diagnose(path, detailed=False)
    try:
        return decode(read_bounded(path))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            return diagnose(path, detailed=False)
        except PinchpointError:
            hint = "pinchpoint diagnose --json TRACE > report.json"
            raise UsageError(f"{path}: no report ({error})", hint=hint) from None


def expected(from_report: Path | None, fixed: str | None) -> Promise | None:
    """What the report says of the change ``fixed``; UsageError where it says nothing of it."""
    if from_report is None:
        if fixed is not None:
            raise UsageError("--fixed names a finding of a report", hint="add --from report.json")
        return None
    report = read_report(from_report)
    rungs = () if report.fix_ladder is None else report.fix_ladder.rungs
    for rung in rungs:
        if fixed in (None, rung.id) and rung.base_ns:
            low, high = rung.range_ns
            between = (low / rung.base_ns, high / rung.base_ns)
            return Promise(rung.id, rung.step_ns / rung.base_ns, between)
    known = ", ".join(rung.id for rung in rungs) or "none"
    raise UsageError(
        f"{from_report} predicts nothing of {fixed or 'any change'}",
        hint=f"--fixed: {known}",
    )


def outcome_of(result: AbResult, promise: Promise | None) -> FixOutcome | None:
    """Whether the change worked, in median steps; None where steps were not timed."""
    timed = next((m for m in result.measures if m.name == STEP_TIME), None)
    if timed is None:
        return None
    before = timed.sides[0] * _MS  # as the table beside it has them
    low_high = timed.ci95_ratio
    between = None if low_high is None else (before * (1 + low_high[0]), before * (1 + low_high[1]))
    predicted = None
    if promise is not None:
        low, high = promise.range_ratio
        predicted = (before * promise.ratio, (before * low, before * high))
    fixed = () if promise is None else (promise.fixed,)
    measured = before * (1 + timed.estimate_ratio)
    return fix_outcome(fixed, before, measured, between, "measured in pairs of runs", predicted)
