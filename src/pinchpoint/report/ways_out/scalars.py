"""A report as numbers by name, as experiment trackers keep them.

Names end in their unit. What is not known is left out.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.finding import Finding
from pinchpoint.report import wording
from pinchpoint.report.document import Report

_NS_PER_MS = 1e6


def scalars(report: Report) -> dict[str, float]:
    """The step, where it goes, and what each finding would save; all names begin alike."""
    return {f"pinchpoint/{name}": value for name, value in _named(report)}


def step_series(report: Report) -> tuple[float, ...]:
    """The duration of each complete step of the recording in ms, profiler included."""
    return tuple(ns / _NS_PER_MS for ns in report.steps.duration_ns)


def _named(report: Report) -> Iterator[tuple[str, float]]:
    yield from _known("recorded_step_ms", report.steps.typical_ns)
    yield from _known("step_ms", wording.base_ns(report))
    yield from _known("step_if_all_fixed_ms", report.together_ns)
    if report.device is not None and report.device.idle_ratio is not None:
        yield "device_idle_ratio", report.device.idle_ratio
    for part, ns in wording.all_parts(report):
        yield f"breakdown/{part.part}_ms", ns / _NS_PER_MS
    yield "findings_count", float(len(report.findings))
    for finding in report.findings:
        yield from _finding(report, finding)


def _finding(report: Report, finding: Finding) -> Iterator[tuple[str, float]]:
    base = wording.base_ns(report)
    yield from _known(f"findings/{finding.id}/costs_ms", finding.cost_ns_per_step)
    if base is not None and finding.predicted_step_ns is not None:
        saved = base - finding.predicted_step_ns
        yield f"findings/{finding.id}/saves_ms", saved / _NS_PER_MS


def _known(name: str, ns: int | None) -> Iterator[tuple[str, float]]:
    if ns is not None:
        yield name, ns / _NS_PER_MS
