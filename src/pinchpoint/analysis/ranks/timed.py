"""The step of a job without the profiler, as its ranks timed it themselves."""

import numpy as np

from pinchpoint.analysis.ranks.own_time import COMMON_RATIO, JobFacts


def timed_step_ns(facts: JobFacts) -> float | None:
    """The mean step that most ranks timed themselves, without the profiler: the median over them.
    None where fewer than half timed any, or recorded steps are corrected instead."""
    known = [rank.timed_step_ns for rank in facts.ranks if rank.timed_step_ns]
    return float(np.median(known)) if len(known) >= COMMON_RATIO * len(facts.ranks) > 0 else None
