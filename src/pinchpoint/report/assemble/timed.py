"""How the step without the profiler is known, as fields of the document."""

from typing import Any

import numpy as np

from pinchpoint.analysis.replay.predict import launches_ns
from pinchpoint.trace import Trace

VISIBLE_RATIO = 0.005  # of the step; three digits show no smaller part of it


def launch_fields(trace: Trace) -> dict[str, Any]:
    """What launches cost more since the recording, and the step as it was timed with that."""
    run = trace.run
    if run is None or run.launch is None:
        return {}
    known = {"launch_more_ns": run.launch.more_ns}
    if not launches_ns(trace):
        return known
    return known | {"measured_ns": int(np.median(run.unprofiled_step_ns))}


def how_known(trace: Trace) -> str:
    """In words."""
    run = trace.run
    if run is None or not run.unprofiled_step_ns:
        return "estimated: the cost of recording taken out"
    how, less_ns = "measured in the same run", launches_ns(trace)
    if run.launch is None or less_ns < VISIBLE_RATIO * float(np.median(run.unprofiled_step_ns)):
        return how
    each_us = run.launch.more_ns / 1e3
    return f"{how}, less what launches cost more since the recording ({each_us:.1f} µs each)"
