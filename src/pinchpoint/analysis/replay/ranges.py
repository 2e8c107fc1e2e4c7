"""How far a predicted step may be off, by what the prediction rests on.

Device work that nothing changed is what it was, but for clocks: a short recording runs cooler than
a long run. Device work that a fix makes faster rests on an assumed ceiling. Host time is the least
certain part: it varies between runs of one program, and what recording adds to it is an estimate.
Few steps that differ say little about their mean. Each of these gives a part of the range; they are
independent, so their squares add up.

Each share was chosen on programs other than those it was then tried on, for the smallest width
that holds nine of ten of their measured steps: ``benchmarks/held_out.py`` makes the choice again,
and ``benchmarks/accuracy.py`` prints what it covers. Asked separately, shares for too long and for
too short did not do better on programs that were left out, so there is one for both.
"""

from math import hypot

import numpy as np

from pinchpoint.analysis.replay.graph import Graph
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Ints

ONE_STEP_RATIO = 0.1  # recorded steps of one program usually differ by less


@dataclass(frozen=True)
class Doubts:
    """By which share of each part of the step a prediction may be off, either way."""

    device: float
    changed_device: float
    host: float
    recording: float
    sampling: float  # in standard errors
    fix: float = 0.0  # of the saving, or of the step that is left if less


# The step as it is, without the profiler. Chosen by benchmarks/held_out.py.
AS_IT_IS = Doubts(device=0.075, changed_device=0.0, host=0.30, recording=0.15, sampling=1.0)
# After a fix, host time that was hidden or disturbed decides more often.
AFTER_A_FIX = Doubts(
    device=0.075, changed_device=0.10, host=0.60, recording=0.25, sampling=1.0, fix=0.16
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
    rare_ns: float = 0.0  # standard error of what exceptional steps add to the mean one

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
    shorter than the device's work; how often exceptions come is doubtful in any case."""
    firm = made.device_ns - made.changed_device_ns
    of_device = hypot(
        firm * doubts.device,
        made.changed_device_ns * doubts.changed_device,
        min(made.saving_ns, made.step_ns) * doubts.fix,
    )
    off = hypot(
        of_device,
        made.host_ns * doubts.host,
        made.recording_ns * doubts.recording,
        made.sampling_ns * doubts.sampling,
    )
    below = made.step_ns - max(made.step_ns - off, made.device_ns - of_device, 0.0)
    least = made.step_ns - hypot(below, made.rare_ns)
    return round(least), round(made.step_ns + hypot(off, made.rare_ns))
