"""How far a predicted step may be off, by what the prediction rests on.

Device work that nothing changed is what it was, but for clocks: a short recording runs cooler than
a long run. Device work that a fix makes faster rests on an assumed ceiling. Host time is the least
certain part: it varies between runs of one program, and what recording adds to it is an estimate.
Few steps that differ say little about their mean. Each of these gives a part of the range; they are
independent, so their squares add up.

The shares were chosen so that about nine of ten measured steps of ``benchmarks/accuracy.py`` lie
inside; what they cover is printed there.
"""

from dataclasses import dataclass
from math import hypot

import numpy as np

from pinchpoint.analysis.replay.graph import Graph
from pinchpoint.trace.arrays import Ints

ONE_STEP_RATIO = 0.1  # recorded steps of one program usually differ by less


@dataclass(frozen=True)
class Doubts:
    """Shares of its part of the step by which a prediction may be too long, and too short."""

    device: tuple[float, float]
    changed_device: tuple[float, float]
    host: tuple[float, float]
    recording: tuple[float, float]
    sampling: tuple[float, float]  # in standard errors
    fix: tuple[float, float] = (0.0, 0.0)  # of the saving, or of the step that is left if less


# The step as it is, without the profiler.
AS_IT_IS = Doubts(
    device=(0.05, 0.075),
    changed_device=(0.0, 0.0),
    host=(0.12, 0.12),
    recording=(0.25, 0.45),
    sampling=(1.6, 1.6),
)
# After a fix, host time that was hidden or disturbed decides more often.
AFTER_A_FIX = Doubts(
    device=(0.05, 0.075),
    changed_device=(0.15, 0.20),
    host=(0.70, 0.80),
    recording=(0.25, 0.45),
    sampling=(1.6, 1.6),
    fix=(0.08, 0.12),
)


@dataclass(frozen=True)
class Made:
    """What a predicted step is made of."""

    step_ns: float
    device_ns: float  # device busy, at most the step
    changed_device_ns: float  # part of it that a fix made faster
    sampling_ns: float  # standard error of the mean step
    saving_ns: float = 0.0  # what the fix takes from the step
    recording_ns: float = 0.0  # what was taken out for recording, as far as it made the step longer

    @property
    def host_ns(self) -> float:
        """What is no device work."""
        return max(self.step_ns - self.device_ns, 0.0)


def made_of(
    step_ns: float, graph: Graph, before: Graph, periods_ns: Ints, *, saving_ns: float = 0.0
) -> Made:
    """Composition of a step predicted by replaying ``graph``, which was made from ``before``."""
    took = graph.op_duration_ns
    changed = took != before.op_duration_ns
    device = min(float(took.sum()) / graph.steps, step_ns)
    share = float(took[changed].sum()) / max(float(took.sum()), 1.0)
    return Made(step_ns, device, device * share, standard_error(periods_ns), saving_ns)


def standard_error(periods_ns: Ints) -> float:
    """Of the mean of these; of a single step, which says nothing about others, a guess."""
    n = len(periods_ns)
    if n < 2:
        return ONE_STEP_RATIO * float(np.sum(periods_ns))
    return float(np.std(periods_ns, ddof=1)) / float(np.sqrt(n))


def range_ns(made: Made, doubts: Doubts) -> tuple[int, int]:
    """Least and most that the step may be. What is doubtful about the host cannot make a step
    shorter than the device's work."""
    firm = made.device_ns - made.changed_device_ns
    pairs = (
        (firm, doubts.device),
        (made.changed_device_ns, doubts.changed_device),
        (made.host_ns, doubts.host),
        (made.recording_ns, doubts.recording),
        (made.sampling_ns, doubts.sampling),
        (min(made.saving_ns, made.step_ns), doubts.fix),
    )
    down = hypot(*(amount * doubt[0] for amount, doubt in pairs))
    up = hypot(*(amount * doubt[1] for amount, doubt in pairs))
    sure = hypot(*(amount * doubt[0] for amount, doubt in (pairs[0], pairs[1], pairs[-1])))
    return round(max(made.step_ns - down, made.device_ns - sure, 0.0)), round(made.step_ns + up)
