"""From issues of profiled launches to one finding a rule.

Alone, a report of ncu has no step: the finding's cost is the time of the launches concerned, and
its gain at most what the issue explains. Joined with a timeline, the same share is taken off the
kernels of the step that the launches stand for, and replayed.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import COUNTERS
from pinchpoint.diagnosis.rule import NO_HINT, About, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

if TYPE_CHECKING:
    from pinchpoint.analysis.limits.counter_issues import Examined, Issue, IssueKind


KERNEL_RULE = Rule(needs=("kernel_counters",), record=COUNTERS, about=About.KERNEL)
TORCH_HINT_RULE = replace(KERNEL_RULE, advice=NO_HINT)  # whose hint is PyTorch code

HALF_WAY = 0.5  # of the distance to the roof, where the counters do not say what a fix would win
_MOST_LAUNCHES_SHOWN = 3  # the costliest; a longer list is no evidence but a table
_LONGEST_QUOTE = 200  # characters: two lines of a terminal
_LONGEST_PATTERN = 40  # characters: fits a command line, and tells kernels apart
_WHOLE_MICROSECONDS_NS = 100_000  # from here on decimals say nothing


@dataclass(frozen=True)
class Words:
    """What a rule says around the figures."""

    what: str  # completes "KERNEL … ": is limited by memory bandwidth
    fix: str
    hint: str | None = None
    nvidia: tuple[str, ...] = ()  # NVIDIA's rules that speak of the same


def kernel_findings(trace: Trace, kind: "IssueKind", words: Words) -> Iterator[Found]:
    """One finding about all launches that have the issue, the most costly first; or none."""
    from pinchpoint.analysis.limits.counter_issues import examined_launches

    affected = [
        (examined, issue)
        for examined in examined_launches(trace)
        for issue in examined.issues
        if issue.id is kind
    ]
    if not affected:
        return
    affected.sort(key=lambda pair: -(pair[0].facts.duration_ns or 0.0))
    worst = affected[0][0]
    cost = sum(e.facts.duration_ns or 0.0 for e, _ in affected)
    won = sum((e.facts.duration_ns or 0.0) * _won_ratio(e, i) for e, i in affected)
    more = len(affected) - 1

    others = f" (and {more} more launch{'es' if more > 1 else ''})" if more else ""

    changes = _changes(trace, affected)
    rows = np.concatenate([c.device_ops for c in changes]) if changes else np.zeros(0, np.intp)
    ops = trace.device_ops
    timed = ops is not None and len(rows) > 0
    in_step = round(per_step(trace, int(ops["duration_ns"][rows].sum()))) if timed and ops else None
    host = None if not timed or ops is None else ops.value("host_op", int(rows[0]))
    yield Found(
        summary=f"{short_kernel_name(worst.launch.name)}{others} {words.what}",
        evidence=tuple(_evidence(affected, words)),
        cost_ns_per_step=round(cost) if in_step is None else in_step,
        changes=tuple(changes),
        saving_ns_per_step=None if changes or not won else (0, round(won)),
        fix=words.fix,
        hint=words.hint,
        confirm=f"ncu --set full -k regex:{_pattern(worst.launch.name)} -c 1 python train.py",
        location=None if host is None else location_of(trace, int(host)),
        consequence=_of_profiled(won, cost) if trace.device_ops is None else None,
        confidence="medium",
    )


def _of_profiled(won: float, cost: float) -> str:
    """What may be won, where no step is known to hold it against."""
    if not cost:
        return "of unknown size: no duration was collected"
    return f"wins up to {_us(won)} of {_us(cost)} µs" if won else f"concerns {_us(cost)} µs"


def _us(ns: float) -> str:
    return f"{ns / 1e3:.1f}" if ns < _WHOLE_MICROSECONDS_NS else f"{ns / 1e3:,.0f}"


def _won_ratio(examined: "Examined", issue: "Issue") -> float:
    if issue.won_ratio is not None:
        return max(min(issue.won_ratio, 1.0), 0.0)
    reached = examined.point.roof_ratio
    return 0.0 if reached is None else HALF_WAY * max(1 - reached, 0.0)


def _changes(trace: Trace, affected: "list[tuple[Examined, Issue]]") -> list[ScaleDeviceOps]:
    """The kernels of the steps that the launches stand for, without the share that is lost."""
    if trace.device_ops is None or not len(trace.device_ops):
        return []
    from pinchpoint.analysis.limits.counters import launch_of_device_ops

    launch, inside = launch_of_device_ops(trace), device_ops_in_steps(trace)
    changes: list[ScaleDeviceOps] = []
    for examined, issue in affected:
        rows = np.flatnonzero((launch == examined.launch.number) & inside)
        won = _won_ratio(examined, issue)
        if len(rows) and won > 0:
            changes.append(ScaleDeviceOps(rows, 1 - won))
    return changes


def _evidence(affected: "list[tuple[Examined, Issue]]", words: Words) -> Iterator[Evidence]:
    for examined, issue in affected[:_MOST_LAUNCHES_SHOWN]:
        yield Evidence(
            f"launch {examined.launch.number}, {duration(examined.facts.duration_ns or 0)}",
            issue.text,
            "",
            name=examined.launch.name,
        )
    worst = affected[0][0].launch
    for said in worst.rules:
        if said.rule in words.nvidia and said.kind in ("OPT", "WRN"):
            text = said.text
            quote = text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"
            yield Evidence(f"Nsight Compute's rule {said.rule}", quote, "", name=worst.name)


def _pattern(name: str) -> str:
    """The kernel's bare name, without what a regular expression would take for more."""
    words = re.findall(r"[A-Za-z_]\w*", _without_templates(name)) or ["."]
    return str(words[-1])[:_LONGEST_PATTERN]


def _without_templates(name: str) -> str:
    from pinchpoint.analysis.limits.counters import comparable_name

    return comparable_name(name).split("<")[0]
