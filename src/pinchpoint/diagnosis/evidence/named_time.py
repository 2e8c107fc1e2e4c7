"""Names for time that a kind of work alone does not tell: the heaviest of its operations, ranges
that the program itself named, and launches that were profiled without a timeline."""

from collections import defaultdict

import numpy as np

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.analysis.limits.counter_issues import examined_launches
from pinchpoint.analysis.steps.in_steps import (
    device_ops_in_steps,
    per_step,
    phases,
    rows_in_steps,
)
from pinchpoint.analysis.time.accounting import Breakdown
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.regex import regex
from pinchpoint.trace import ApiKind, Trace
from pinchpoint.trace.durations import duration

MOST_RANGES = 4  # in a sentence
_MOST_OF_IT_RATIO = 0.5  # of the time of several: one operation then is what it is about
SLOW_LAUNCH_NS = 200_000  # of all drivers a launch takes some microseconds, under a profiler tens
SLOW_LAUNCHES_RATIO = 0.2  # of the step: what is told of it before any finding
_DIGITS = regex(r"\d+")


def heaviest_of(trace: Trace, category: Category) -> tuple[str, float, int] | None:
    """The name that takes most of the device's time of a kind in the judged steps, its share of
    it, and how many names there are; None without any."""
    ops = trace.device_ops
    if ops is None:
        return None
    rows = (category_of_device_ops(trace) == category) & device_ops_in_steps(trace)
    spent = np.bincount(ops["name"][rows], weights=ops["duration_ns"][rows])
    if not spent.sum():
        return None
    most = int(spent.argmax())
    name = short_kernel_name(trace.names[most])
    return name, float(spent[most] / spent.sum()), int((spent > 0).sum())


def heaviest_collective(trace: Trace) -> str:
    """The one of several that takes most of their time, as a sentence; empty where none does."""
    found = heaviest_of(trace, Category.COLLECTIVE)
    if found is None or found[2] < 2 or found[1] < _MOST_OF_IT_RATIO:
        return ""
    return f" Of the time of its {found[2]} collectives, {found[0]} takes {100 * found[1]:.0f} %."


def in_ranges(trace: Trace, parts: Breakdown) -> str:
    """The ranges in which the host was while nothing else of it was recorded, as a sentence."""
    whole, silent = parts.typical_ns or 0, parts.of_part(GapKind.UNRECORDED.id)
    if not whole or 2 * silent < whole:
        return ""
    named = phases(trace, in_marks=True)
    if 2 * sum(ns for _, ns in named) < whole:
        return ""
    if len(named) > MOST_RANGES:  # layer 1, layer 2
        alike: defaultdict[str, float] = defaultdict(float)
        for name, ns in named:
            alike[_DIGITS.sub("#", name)] += ns
        named = tuple(sorted(alike.items(), key=lambda one: -one[1]))
    said = ", ".join(f"{name} ({100 * ns / whole:.0f} %)" for name, ns in named[:MOST_RANGES])
    return f" The program's own ranges of that time: {said}."


def slow_launches(trace: Trace, parts: Breakdown) -> str:
    """A kind of call that launches and usually takes far longer than that, as a sentence.

    Empty without any: a first launch that loads code is one of many of its name.
    """
    calls, whole = trace.api_calls, parts.typical_ns or 0
    if calls is None or not whole:
        return ""
    launches = np.isin(calls["kind"], (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH))
    mine = calls.take(launches & rows_in_steps(trace, calls))
    is_slow = mine["duration_ns"] > SLOW_LAUNCH_NS
    slow = mine.take(is_slow)
    if not len(slow):
        return ""
    spent = np.bincount(slow["name"], weights=slow["duration_ns"])
    most = int(spent.argmax())
    if not is_slow[mine["name"] == most].mean() > _MOST_OF_IT_RATIO:
        return ""
    of_step_ns = per_step(trace, float(spent[most]))
    if of_step_ns < SLOW_LAUNCHES_RATIO * whole:
        return ""
    count = per_step(trace, float((slow["name"] == most).sum()))
    return (
        f" Launches take microseconds, yet {count:.3g} a step take {duration(of_step_ns / count)}"
        f" each, {100 * of_step_ns / whole:.0f} % of it, in {trace.names[most]}: it compiles, loads"
        " or waits there."
    )


def profiled_alone(trace: Trace) -> str:
    """What was profiled, of a report of kernels without a timeline; empty without one."""
    found = examined_launches(trace)
    if not found:
        return ""
    taken: defaultdict[str, float] = defaultdict(float)
    for one in found:
        taken[short_kernel_name(one.launch.name)] += one.facts.duration_ns or 0.0
    name, most = max(taken.items(), key=lambda item: item[1])
    launches = f"{len(found):,} launch{'es' if len(found) > 1 else ''}"
    were = "were" if len(found) > 1 else "was"
    of = f"of {name}" if len(taken) == 1 else f"of {len(taken):,} kernels"
    if not most:
        return (
            f"{launches} {of} {were} profiled, and what each took was not collected:"
            " ncu --section SpeedOfLight collects it."
        )
    whole = sum(taken.values())
    if len(found) == 1:
        return f"{launches} {of} was profiled: {duration(whole)}."
    share = f", {name} {100 * most / whole:.0f} % of it" if len(taken) > 1 else ""
    return f"{launches} {of} {were} profiled, {duration(whole)} altogether{share}."


__all__ = [
    "MOST_RANGES",
    "SLOW_LAUNCHES_RATIO",
    "SLOW_LAUNCH_NS",
    "heaviest_collective",
    "heaviest_of",
    "in_ranges",
    "profiled_alone",
    "slow_launches",
]
