"""Did the fix work? What was predicted of it against what was measured after it."""

from typing import Literal

import msgspec

Interval = tuple[float, float]
Said = Literal["worked", "worked better", "worked in part", "did not help", "cannot tell"]


class FixOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One change, or several made together; nanoseconds a step, all on one clock."""

    fixed: tuple[str, ...]  # findings that went; empty: which change it was is not known
    before_ns: float
    predicted_ns: float | None = None  # null: nothing was predicted of this change
    predicted_range_ns: Interval | None = None
    measured_ns: float
    measured_range_ns: Interval | None = None  # null: too few steps to tell
    clock: str  # without the profiler, as recorded, measured
    said: Said
    doubt: str | None = None  # why both may not be one program, so that this was no fix


def fix_outcome(
    fixed: tuple[str, ...],
    before_ns: float,
    measured_ns: float,
    measured_range_ns: Interval | None,
    clock: str,
    predicted: tuple[float, Interval] | None = None,
) -> FixOutcome:
    """The answer. A change has worked where the measured step lies where it was predicted."""
    return FixOutcome(
        fixed=fixed,
        before_ns=before_ns,
        predicted_ns=predicted[0] if predicted else None,
        predicted_range_ns=predicted[1] if predicted else None,
        measured_ns=measured_ns,
        measured_range_ns=measured_range_ns,
        clock=clock,
        said=_said(before_ns, measured_ns, measured_range_ns, predicted),
    )


def _said(
    before_ns: float,
    measured_ns: float,
    measured: Interval | None,
    predicted: tuple[float, Interval] | None,
) -> Said:
    low, high = measured or (measured_ns, measured_ns)
    if low <= before_ns <= high and measured is not None:
        return "cannot tell"
    if measured_ns >= before_ns:
        return "did not help"
    if predicted is None:
        return "worked"
    least, most = predicted[1]
    if high < least:
        return "worked better"
    return "worked" if low <= most else "worked in part"
