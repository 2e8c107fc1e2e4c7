"""How long a step and its parts take, on each clock, as fields of the document."""

from typing import Any

import numpy as np

from pinchpoint.analysis.mean.base_parts import OUTSIDE, base_parts
from pinchpoint.analysis.replay.predict import launches_ns
from pinchpoint.analysis.replay.unprofiled import unprofiled_breakdown
from pinchpoint.analysis.steps.in_steps import only_ranges
from pinchpoint.analysis.steps.timed import timed_by_run
from pinchpoint.analysis.time.accounting import StepPart, breakdown
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.report.documents.report import PartOfStep
from pinchpoint.report.words.breakdown import WITHIN_RANGES
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

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
    if run is None or not timed_by_run(trace):
        return "estimated: the cost of recording taken out"
    how, less_ns = "measured in the same run", launches_ns(trace)
    if run.quicker_than_run is not None:
        beside_ns, count = run.quicker_than_run
        how = (
            f"measured in the run's {count} other steps: those beside the recording took"
            f" {duration(beside_ns)} and did not last"
        )
    if run.launch is None or less_ns < VISIBLE_RATIO * float(np.median(run.unprofiled_step_ns)):
        return how
    each_us = run.launch.more_ns / 1e3
    return f"{how}, less what launches cost more since the recording ({each_us:.1f} µs each)"


def _label(trace: Trace, part: StepPart) -> str:
    """Time inside of ranges is not idle, even where nothing else was recorded of it."""
    silent = part.id == GapKind.UNRECORDED.id.replace("idle-", "host-")
    return WITHIN_RANGES if silent and only_ranges(trace) else part.label


def parts_of_step(trace: Trace) -> tuple[PartOfStep, ...]:
    """Where a step goes, on every clock that is known."""
    found, without, of_base = breakdown(trace), unprofiled_breakdown(trace), base_parts(trace)
    if of_base is None:
        return ()
    recorded = found.ns_per_step.tolist()
    unprofiled = [None] * len(recorded) if without is None else without.ns_per_step.tolist()
    parts = tuple(
        PartOfStep(
            part=part.id,
            label=_label(trace, part),
            group=part.group,
            ns_per_step=ns,
            unprofiled_ns_per_step=corrected,
            base_ns_per_step=base_ns,
            recorded_base_ns_per_step=recorded_base_ns,
        )
        for part, ns, corrected, base_ns, recorded_base_ns in zip(
            (*found.parts, OUTSIDE),
            (*recorded, 0),
            (*unprofiled, None if without is None else 0),
            of_base.ns.tolist(),
            of_base.recorded_ns.tolist(),
            strict=True,
        )
    )
    return parts if parts[-1].base_ns_per_step else parts[:-1]
