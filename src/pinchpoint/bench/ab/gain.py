"""What a pass does not say: B is better, for certain, and how many times."""

from pinchpoint.bench.ab.result import AbResult, MeasureResult
from pinchpoint.bench.measures import OWN_TIME, OWN_WORK, TIMES
from pinchpoint.bench.words import improved


def gains(result: AbResult) -> tuple[MeasureResult, ...]:
    """The gated measures that improved, by half of the threshold at least, as regressions are
    reported from there on; where none of them did for sure, the time without waiting for a CPU,
    if that did. Empty where nothing is sure.

    If that time became no shorter, neighbours on the machine, or other processes that have the work
    now, are all of the gain of the others.
    """
    own = next((m for m in result.measures if is_own(m)), None)
    if result.verdict != "pass" or (own is not None and own.estimate_ratio >= 0):
        return ()
    gated = [m for m in result.measures if m.gated]
    least = min((m.threshold_ratio or 0.0 for m in gated), default=0.0) / 2
    found = tuple(m for m in gated if m.improved and m.estimate_ratio <= -least)
    if not found and own is not None and own.improved and own.estimate_ratio <= -least:
        return (own,)
    return found


def is_own(m: MeasureResult) -> bool:
    """Whether it is the time without waiting for a CPU."""
    return m.name in (OWN_TIME, OWN_WORK)


def gain_in_words(result: AbResult) -> str:
    """The gated measure that improved, first and with its interval; beside a wall time what it
    takes without waiting for a CPU, where others took the CPUs: a shorter step waits less often,
    and its wall time says more than the program gained. Empty where nothing is sure."""
    found = gains(result)
    if not found:
        return ""
    best = found[0]
    if not best.gated:
        return f"{best.label}, which has no gate, {improved_times(best)}"
    said = f"{best.label} {improved_times(best)}"
    own = next((m for m in result.measures if is_own(m)), None)
    busy = any(run.threads_sleep or run.at_once for run in result.runs)
    if own is None or own.gated or not busy or best.name not in TIMES:
        return said
    return f"{said}; {own.label} {improved(own.estimate_ratio)}"


def improved_times(m: MeasureResult) -> str:
    """``improved 1.22 × (95 %: 1.15 to 1.30 ×)``: how many times as fast, or as many."""
    return improved(m.estimate_ratio, m.ci95_ratio)
