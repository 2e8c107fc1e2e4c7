"""How far a predicted step may be off, by what the prediction rests on.

Device work that nothing changed is what it was, but for clocks: a short recording runs cooler than
a long run. Where the same work took longer in one recorded step than in another, clocks change, and
the whole run may lie beyond both. Device work that a fix makes faster rests on an assumed ceiling.
Host time is the least certain part: it varies between runs of one program, and what recording adds
to it is an estimate. Few steps that differ say little about their mean. Each of these gives a part
of the range; they are independent, so their squares add up.

Each share was chosen on programs other than those it was then tried on, for the smallest width
that holds nine of ten of their measured steps: ``benchmarks/held_out.py`` makes the choice again,
and ``benchmarks/accuracy.py`` prints what it covers. There is one share for too long and too
short, but for what a fix wins beyond its saving: with its cause go waits, temporaries and calls
that no evidence connects to it. Of 29 fixes in programs written by people who did not know the
rules, eight of the nine steps outside of their range were shorter.
"""

from enum import StrEnum
from math import hypot

import numpy as np

from pinchpoint.analysis.replay.graph import Graph
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Ints

ONE_STEP_RATIO = 0.1  # recorded steps of one program usually differ by less
# A step that may be off by more is said as a range: within this, nine of ten corrected steps were
# right to 8 % and half of them to 1 % (docs/accuracy.md).
CLOSE_RATIO = 0.20
DISTORTED_RATIO = 0.5  # of the step, taken out for recording: errors there are of another kind
# Student's 95th percentile for 1, 2, ... degrees of freedom; beyond these it changes little.
STUDENT_95 = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81)


@dataclass(frozen=True)
class Doubts:
    """By which share of each part of the step a prediction may be off, either way."""

    device: float
    uneven: float  # of what the device's work differs by from step to step
    changed_device: float
    host: float
    recording: float
    sampling: float  # of the error of a mean of few steps
    fix: float = 0.0  # of the saving, or of the step that is left if less
    beyond: float = 0.0  # of the saving, that a fix may win beyond it
    limit: float = 0.0  # of device work at the limit of the machine


# The step as it is, without the profiler. Chosen by benchmarks/held_out.py.
AS_IT_IS = Doubts(
    device=0.03, uneven=1.0, changed_device=0.0, host=0.30, recording=0.15, sampling=1.0
)
# After a fix, host time that was hidden or disturbed decides more often.
AFTER_A_FIX = Doubts(
    device=0.06,
    uneven=1.3,
    changed_device=0.10,
    host=0.60,
    recording=0.25,
    sampling=1.0,
    fix=0.12,
    beyond=0.05,
    limit=0.5,  # right within a factor of two, as the bound has it: no kernel runs at it for long
)


@dataclass(frozen=True)
class Made:
    """What a predicted step is made of."""

    step_ns: float
    device_ns: float  # device busy, at most the step
    changed_device_ns: float  # part of it that a fix made faster
    sampling_ns: float  # by how much the mean of so few steps may be off
    saving_ns: float = 0.0  # what the fix takes from the step
    recording_ns: float = 0.0  # what was taken out for recording, as far as it made the step longer
    rare_ns: float = 0.0  # standard error of what exceptional steps add to the mean one
    uneven_ns: float = 0.0  # by how much the device's work differs from step to step
    limited_ns: float = 0.0  # part of what a fix made faster that runs at its limit then
    ahead_ns: float = 0.0  # of host time that replay leaves, over which the host may run ahead
    shortest_ns: float = 0.0  # of the steps whose mean it is, in proportion

    @property
    def host_ns(self) -> float:
        """What is no device work, as replayed."""
        return max(self.step_ns + self.ahead_ns - self.device_ns, 0.0)


def made_of(
    step_ns: float,
    graph: Graph,
    before: Graph,
    periods_ns: Ints,
    *,
    uneven_ratio: float = 0.0,
    saving_ns: float = 0.0,
) -> Made:
    """Composition of a step predicted by replaying ``graph``, which was made from ``before``.

    ``uneven_ratio`` is what the device's work differs by from step to step, as a share of it.
    """
    took = graph.op_duration_ns
    changed = took != before.op_duration_ns
    device = min(float(took.sum()) / graph.steps, step_ns)
    share = float(took[changed].sum()) / max(float(took.sum()), 1.0)
    firm = device * (1 - share)
    return Made(
        step_ns,
        device,
        device * share,
        error_of_mean(periods_ns),
        saving_ns,
        uneven_ns=firm * uneven_ratio,
        shortest_ns=step_ns * float(np.min(periods_ns) / np.mean(periods_ns))
        if np.any(periods_ns)
        else 0.0,
    )


def error_of_mean(periods_ns: Ints) -> float:
    """By how much the mean of these may be off in nine of ten samples as small: Student's
    quantile times the standard error. Of a single step, which says nothing of others, a guess."""
    n = len(periods_ns)
    if n < 2:
        return ONE_STEP_RATIO * float(np.sum(periods_ns))
    quantile = STUDENT_95[min(n - 1, len(STUDENT_95)) - 1]
    return quantile * float(np.std(periods_ns, ddof=1)) / float(np.sqrt(n))


def range_ns(made: Made, doubts: Doubts) -> tuple[int, int]:
    """Least and most that the step may be. What is doubtful about the host cannot make a step
    shorter than the device's work; how often exceptions come is doubtful in any case. A mean is no
    shorter than the shortest step; steps that were not recorded may be longer than all."""
    firm = made.device_ns - made.changed_device_ns
    of_device = hypot(
        firm * doubts.device,
        made.uneven_ns * doubts.uneven,
        made.changed_device_ns * doubts.changed_device,
        min(made.saving_ns, made.step_ns) * doubts.fix,
    )
    of_host = hypot(made.host_ns * doubts.host, made.recording_ns * doubts.recording)
    off = hypot(of_device, of_host, made.limited_ns * doubts.limit, made.ahead_ns)
    shorter = hypot(of_device, made.saving_ns * doubts.beyond)
    below = made.step_ns - max(
        made.step_ns - hypot(shorter, of_host), made.device_ns - shorter, 0.0
    )
    sampling = made.sampling_ns * doubts.sampling
    fewer = min(sampling, made.step_ns - made.shortest_ns)
    below = min(hypot(below, fewer), made.step_ns)
    least = made.step_ns - hypot(below, made.rare_ns)
    return round(least), round(made.step_ns + hypot(off, sampling, made.rare_ns))


class Doubtful(StrEnum):
    """What a predicted step is least certain by."""

    RECORDING = "recording took much of that"
    FEW_STEPS = "the few recorded steps differ much"
    DEVICE = "the same work took the device longer in some steps"
    HOST = "the host's time varies from run to run"
    LAUNCHES = "launches may cost more since the recording, by how much is not known"


def most_doubtful(made: Made, doubts: Doubts) -> Doubtful | None:
    """What leaves most doubt where the step may be off by more than ``CLOSE_RATIO``, else None."""
    low, high = range_ns(made, doubts)
    if high - low <= 2 * CLOSE_RATIO * made.step_ns:
        return None
    of_host = hypot(made.host_ns * doubts.host, made.recording_ns * doubts.recording)
    distorted = made.recording_ns > DISTORTED_RATIO * made.step_ns
    parts = {
        Doubtful.FEW_STEPS: hypot(made.sampling_ns * doubts.sampling, made.rare_ns),
        Doubtful.DEVICE: made.uneven_ns * doubts.uneven,
        Doubtful.RECORDING if distorted else Doubtful.HOST: of_host,
    }
    return max(parts, key=lambda part: parts[part])
