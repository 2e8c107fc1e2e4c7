"""Which steps a long recording is drawn in full for: a typical one, an exceptional one, and one of
every finding."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.mean.exceptional_steps import exceptional_steps
from pinchpoint.analysis.steps.steps import Steps, steps
from pinchpoint.report.documents.report import Report, finding_key
from pinchpoint.report.timeline.kinds import Numbers
from pinchpoint.report.timeline.occurrences import Occurrences, of_findings
from pinchpoint.trace import Trace


@dataclass(frozen=True)
class FullStep:
    """One step, from the first work that the host does for it to the end of its last."""

    number: int
    start_ns: int
    end_ns: int
    why: tuple[str, ...]  # typical, exceptional, ids of findings


def full_steps(trace: Trace, report: Report) -> tuple[FullStep, ...]:
    """The steps in the order in which they matter; none where no steps were found."""
    found = steps(trace)
    if found.how == "none" or not len(found):
        return ()
    why: dict[int, list[str]] = {}
    for reason, step in _wanted(trace, report, found):
        why.setdefault(step, []).append(reason)
    start = np.minimum(found.start_ns, found.host_start_ns)
    end = np.maximum(found.end_ns, found.host_end_ns)
    return tuple(
        FullStep(int(found.number[step]), int(start[step]), int(end[step]), tuple(reasons))
        for step, reasons in why.items()
    )


def _wanted(trace: Trace, report: Report, found: Steps) -> Iterator[tuple[str, int]]:
    lasting = found.end_ns - found.start_ns
    typical = _typical(found, lasting)
    chosen = [typical]
    yield "typical", typical
    far = [one.step for one in exceptional_steps(trace)]
    far = far or [step for step in found.outliers if lasting[step] > lasting[typical]]
    if far:
        longest = int(max(far, key=lambda step: lasting[step]))
        chosen.append(longest)
        yield "exceptional", longest
    for number, (_, places) in enumerate(of_findings(trace, report), 1):
        spent = _spent(trace, found, places)
        if spent.any():
            chosen.append(_step_of(spent, chosen, far))
            yield finding_key(report.findings[:number]), chosen[-1]


def _step_of(spent: Numbers, chosen: list[int], far: list[int]) -> int:
    """Of what mostly happens in exceptional steps one of those, else the typical step if it can."""
    about_far = 2 * spent[far].sum() > spent.sum()
    wanted = [step for step in chosen if spent[step] and (step in far) == about_far]
    return wanted[0] if wanted else int(spent.argmax())


def _typical(found: Steps, lasting: Numbers) -> int:
    """The typical step that is nearest to the length that is told."""
    usual = np.flatnonzero(found.typical)
    if not len(usual):
        return int(lasting.argmax())
    return int(usual[np.argmin(np.abs(lasting[usual] - (found.typical_ns or 0)))])


def _spent(trace: Trace, found: Steps, places: Occurrences) -> Numbers:
    """Time of the places that begin in each step, and 1 ns for each of them."""
    starts, lengths = [places.start_ns], [places.end_ns - places.start_ns]
    for table, rows in places.rows.items():
        held = getattr(trace, table)
        starts.append(held["start_ns"][rows])
        lengths.append(held["duration_ns"][rows])
    start, length = np.concatenate(starts), np.concatenate(lengths)
    total = np.zeros(len(found), np.int64)
    step = np.searchsorted(found.start_ns, start, "right") - 1
    inside = (step >= 0) & (start < found.end_ns[np.maximum(step, 0)])
    np.add.at(total, step[inside], length[inside] + 1)
    return total
