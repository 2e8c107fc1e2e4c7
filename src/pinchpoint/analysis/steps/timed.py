"""The steps that the run of a recording timed without the profiler.

Hooks time the steps that they see. Of a program of JAX they see none; there the run folder has the
times at which compiled functions were called, place by place. A place whose calls are the steps is
known by the recording: it was called there as often as there are steps, or in each of them as many
times, and from one call to the next passed as much of a step. Its calls outside of the recording
then make steps, too.

The host calls ahead of its device. Where calls in the recording came much closer to each other than
steps did, they did not wait for the step before, and single intervals say nothing: from one wait to
the next (an interval longer than the mean) each call then counts as long as they took on average.
"""

import numpy as np

from pinchpoint.analysis.steps.steps import Steps, steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import CompiledCalls, Trace, once_per_trace

FEWEST_STEPS = 3  # of fewer, many places have as many calls
MOST_CALLS_A_STEP = 32  # as many as a step of several functions in turn has (compiled_calls)
# Of the steps: calls at the ends of the recording that belong to no whole step, and one more.
MISSING_RATIO = 0.05
# Of the mean step: on other clocks, with the first and the last one. Twice a step or half of one is
# no longer it.
ALIKE_RATIO = 1.25
# Of several calls a step: with the next whole number, ten are apart by as much.
SEVERAL_ALIKE_RATIO = 1.05
TELLS_OF_CALLS_SINCE = (3, 12)  # sys.monitoring
AHEAD_RATIO = 0.75  # of the typical step: calls that wait for the step before come as steps do


@dataclass(frozen=True)
class StepsByCalls:
    """A place whose calls make the steps, so many of them each."""

    calls: CompiledCalls
    each: int


@once_per_trace
def timed_by_run(trace: Trace) -> tuple[int, ...]:
    """Each step, on the host's clock or the device's; empty where none was timed."""
    if trace.run is None:
        return ()
    if trace.run.unprofiled_step_ns:
        return trace.run.unprofiled_step_ns
    found, typical_ns = calls_that_make_steps(trace), steps(trace).typical_ns
    if found is None or typical_ns is None:
        return ()
    calls, sides = found.calls, (found.calls.before_ns, found.calls.after_ns)
    if found.each > 1:
        return tuple(ns for side in sides for ns in _together(side, found.each))
    if calls.inside_median_ns >= AHEAD_RATIO * typical_ns:
        return calls.step_ns
    return tuple(ns for side in sides for ns in from_wait_to_wait(side))


@once_per_trace
def calls_that_make_steps(trace: Trace) -> StepsByCalls | None:
    """Of the places that call compiled functions, the one whose calls make the recorded steps: with
    the fewest calls a step."""
    places = trace.run.calls if trace.run else ()
    if not places:
        return None
    found = steps(trace)
    if found.how == "none" or len(found) < FEWEST_STEPS or not len(found.durations_ns):
        return None
    known = ((place, _calls_a_step(place, found)) for place in places if place.step_ns)
    made = [StepsByCalls(place, each) for place, each in known if each is not None]
    return min(made, key=lambda one: (one.each, _missing(one, found)), default=None)


def why_no_calls(trace: Trace) -> str | None:
    """Why calls of compiled functions did not time the steps of a run of JAX; None where they did,
    or nobody listened for another reason."""
    run = trace.run
    if run is None or trace.source.recorder != "jax" or timed_by_run(trace):
        return None
    if run.calls:
        return "no compiled function is called as its steps come"
    numbers = (run.python or "").split(".")[:2]
    known = len(numbers) == 2 and all(n.isascii() and n.isdecimal() for n in numbers)
    if not known or tuple(map(int, numbers)) >= TELLS_OF_CALLS_SINCE:
        return None
    return f"Python {'.'.join(numbers)} does not tell of calls, by which 3.12 times the steps"


def _calls_a_step(place: CompiledCalls, found: Steps) -> int | None:
    """How many calls make one of the recorded steps; None where they do not make them."""
    mean_ns = float(found.durations_ns.mean())
    each = round(mean_ns / max(place.inside_mean_ns, 1))
    if not 1 <= each <= MOST_CALLS_A_STEP:
        return None
    apart = each * place.inside_mean_ns / max(mean_ns, 1.0)
    alike = ALIKE_RATIO if each == 1 else SEVERAL_ALIKE_RATIO
    if not 1 / alike <= apart <= alike:
        return None
    made = StepsByCalls(place, each)
    return each if _missing(made, found) <= each * (1 + MISSING_RATIO * len(found)) else None


def _missing(made: StepsByCalls, found: Steps) -> int:
    return abs(made.calls.inside - made.each * len(found))


def _together(ns: tuple[int, ...], each: int) -> tuple[int, ...]:
    """So many neighbours together; the first ones are left out where they do not make a whole."""
    first = len(ns) % each
    return tuple(sum(ns[at : at + each]) for at in range(first, len(ns), each))


def from_wait_to_wait(ns: tuple[int, ...]) -> tuple[int, ...]:
    """Each interval as long as those are on average that lie between the same two waits.

    What comes before the first wait and after the last one is of rounds that are not whole.
    """
    if not ns:
        return ()
    took = np.array(ns)
    ends = np.flatnonzero(took > took.mean()) + 1
    if len(ends) < 2:
        return (round(took.mean()),) * len(ns)
    rounds = np.split(took, ends)[1:-1]
    return tuple(round(float(one.mean())) for one in rounds for _ in range(len(one)))
