"""Steps that stopped: after a warm-up whose marks do not come again, or in a pause."""

from pinchpoint.capture.process.step_clock import StepClock, median

STALLED_S = 10.0  # warm-up before a loop that no hook sees, or a pause
WARM_UP_S = 2.0  # the same where there were few steps
WINDOW_STALLED_S = 0.25  # with a first window open: what comes now may be a hundred thousand events
WARM_UP_STEPS = 10  # at most, of calls of a model
STALLED_STEPS = 20  # usual steps, for programs whose steps take long
UNKNOWN_S = 30.0  # for a window that opened before it was known how long a step takes


def stopped(clock: StepClock, least_s: float = STALLED_S) -> bool:
    """Whether no step has ended for far longer than steps take."""
    times = clock.interval_ns
    usual_s = median(times) / 1e9 if len(times) else 0.0
    return clock.since_last_s > max(least_s, STALLED_STEPS * usual_s)
