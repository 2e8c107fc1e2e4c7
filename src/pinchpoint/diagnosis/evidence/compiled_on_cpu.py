"""What operations of programs that XLA compiled for a CPU take, and what is won without them.

Several run at once, and in some of the waits for them nothing is seen to run.
"""

from typing import Any

import numpy as np

from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.accounting import AWAITED, breakdown
from pinchpoint.diagnosis.evidence.compiled_work import DOUBT
from pinchpoint.diagnosis.evidence.one_side import leaves
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Table, Trace
from pinchpoint.trace.arrays import Floats, Mask, Rows
from pinchpoint.trace.intervals import flatten


@dataclass(frozen=True, eq=False)
class CpuWork:
    """Operations in judged steps, without those that others are inside of."""

    rows: Rows  # of compiled_ops
    took_ns: Floats  # each
    ns_per_step: int
    count: float  # a step
    alone_ns_per_step: float  # nothing else of a compiled program ran beside
    waits_ns_per_step: float  # in which nothing was seen to run, by that share


def cpu_work(trace: Trace, compiled: Table, mine: Mask) -> CpuWork | None:
    """These rows of ``compiled_ops``; None where no one is in a step."""
    here = (judged_steps(trace).step_of(compiled["start_ns"]) >= 0) & leaves(trace, compiled)
    rows = np.flatnonzero(mine & here)
    if not len(rows):
        return None
    took, busy_ns = compiled["duration_ns"][rows].astype(np.float64), _busy_ns(compiled, here)
    alone_ns = busy_ns - _busy_ns(compiled, here & ~mine)
    return CpuWork(
        rows,
        took,
        round(per_step(trace, float(took.sum()))),
        per_step(trace, len(rows)),
        per_step(trace, alone_ns),
        breakdown(trace).of_part(AWAITED.id) * alone_ns / max(busy_ns, 1),
    )


def won_on_cpu(
    trace: Trace,
    work: CpuWork,
    left: float = 0.0,
    least: float = 0.0,
    likely: float | None = None,
) -> dict[str, Any]:
    """What a finding says is won if at most ``left`` of the work stays, at best ``least``, and most
    likely the first or ``likely``: fields of :class:`~pinchpoint.diagnosis.finding.Found`."""
    step_ns = steps(trace).typical_ns or 0
    likely = left if likely is None else likely
    sure_ns = (1 - left) * work.alone_ns_per_step
    likely_ns = (1 - likely) * (work.alone_ns_per_step + work.waits_ns_per_step)
    most_ns = (1 - least) * work.ns_per_step + work.waits_ns_per_step
    return {
        "cost_ns_per_step": min(round(work.ns_per_step + work.waits_ns_per_step), step_ns),
        "saving_ns_per_step": (round((1 - DOUBT) * sure_ns), min(round(most_ns), step_ns)),
        "likely_saving_ns": min(round(likely_ns), step_ns),
    }


def _busy_ns(compiled: Table, mine: Mask) -> float:
    """Time in which at least one of these runs."""
    return float(flatten(compiled["start_ns"][mine], compiled.end_ns[mine]).total)
