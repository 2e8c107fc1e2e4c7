"""Which part of a recording a viewer gets, when all of it would be too much.

Whole steps first: those around the step in which most findings have a place. If one step alone is
too much, its longest events.
"""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.steps.steps import Steps, steps
from pinchpoint.errors import UsageError
from pinchpoint.frozen import dataclass
from pinchpoint.report.documents.report import Report
from pinchpoint.trace import Trace

Times = NDArray[np.int64]

MOST_EVENTS = 200_000  # 30 to 80 MB of JSON, depending on the names


@dataclass(frozen=True)
class Excerpt:
    """Events that touch the window and last ``shortest_ns`` or longer; None: no bound."""

    start_ns: int | None = None
    end_ns: int | None = None
    shortest_ns: int = 0
    said: str | None = None  # what was left out, in one sentence

    def holds(self, start_ns: Times, end_ns: Times) -> NDArray[np.bool_]:
        """Which of the spans are part of it."""
        inside = end_ns - start_ns >= self.shortest_ns
        if self.start_ns is not None and self.end_ns is not None:
            inside &= (end_ns >= self.start_ns) & (start_ns <= self.end_ns)
        return inside

    def has(self, at_ns: int) -> bool:
        """Whether a moment is part of it."""
        after = self.start_ns is None or at_ns >= self.start_ns
        return after and (self.end_ns is None or at_ns <= self.end_ns)


WHOLE = Excerpt()


def excerpt(
    trace: Trace, report: Report, chosen: tuple[int, int] | None, most: int = MOST_EVENTS
) -> Excerpt:
    """The part with at most ``most`` events; ``chosen`` are the first and last step's numbers.

    Raises UsageError if the recording has no such steps.
    """
    start, end = _events(trace)
    if chosen is None and len(start) <= most:
        return WHOLE
    found = steps(trace)
    window = _chosen(found, *chosen) if chosen else _around(found, np.sort(start), report, most)
    part = WHOLE if window is None else Excerpt(*_times(found, *window))
    inside = part.holds(start, end)
    shortest = _shortest((end - start)[inside], most)
    said = _said(found, window, shortest, len(start), most)
    return Excerpt(part.start_ns, part.end_ns, shortest, said)


def parse_steps(text: str | None) -> tuple[int, int] | None:
    """``3`` or ``3-5`` as two step numbers."""
    if text is None:
        return None
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()) or len(text) > 20:
        raise UsageError(f"--steps {text}: no step numbers", hint="--steps 3 or --steps 3-5")
    return int(first), int(last) if dash else int(first)


def _events(trace: Trace) -> tuple[Times, Times]:
    tables = [t for t in (trace.host_ops, trace.api_calls, trace.device_ops) if t is not None]
    none = [np.zeros(0, np.int64)]
    start = np.concatenate([t["start_ns"] for t in tables] or none)
    return start, np.concatenate([t.end_ns for t in tables] or none)


def _chosen(found: Steps, first: int, last: int) -> tuple[int, int]:
    """Positions of the steps with these numbers."""
    positions = np.flatnonzero((found.number >= first) & (found.number <= last))
    if found.how == "none":
        raise UsageError(f"the recording has no steps: {found.basis}", hint="leave out --steps")
    if not len(positions):
        hint = f"steps are numbered {found.number.min()} to {found.number.max()}"
        raise UsageError(f"no step from {first} to {last} in this recording", hint=hint)
    return int(positions[0]), int(positions[-1])


def _around(found: Steps, starts: Times, report: Report, most: int) -> tuple[int, int] | None:
    """As many steps around the one with most findings as fit; at least that one."""
    if found.how == "none":
        return None
    places = [f.at_ns for finding in report.findings for f in finding.evidence]
    at = np.array([place for place in places if place is not None], np.int64)
    at.sort()
    hits = np.searchsorted(at, found.end_ns) - np.searchsorted(at, found.start_ns)
    score = hits + np.where(found.typical, 0.5, 0.0)
    first = last = int(np.argmax(score))
    begins = np.searchsorted(starts, found.start_ns)
    ends = np.searchsorted(starts, found.end_ns)
    while True:
        wider = [(first, last + 1), (first - 1, last)]
        fits = [
            (a, b) for a, b in wider if a >= 0 and b < len(found) and ends[b] - begins[a] <= most
        ]
        if not fits:
            return first, last
        first, last = fits[0]


def _times(found: Steps, first: int, last: int) -> tuple[int, int]:
    """From where the host began to work for the first step to where the last one completed."""
    start = min(int(found.start_ns[first]), int(found.host_start_ns[first]))
    return start, max(int(found.end_ns[last]), int(found.host_end_ns[last]))


def _shortest(lasting: Times, most: int) -> int:
    """The duration from which on at most ``most`` events are left."""
    if len(lasting) <= most:
        return 0
    return int(np.partition(lasting, len(lasting) - most)[len(lasting) - most]) + 1


def _said(
    found: Steps, window: tuple[int, int] | None, shortest: int, events: int, most: int
) -> str | None:
    parts = []
    if window is not None and window != (0, len(found) - 1):
        first, last = (int(found.number[position]) for position in window)
        parts.append(f"step {first}" if first == last else f"steps {first} to {last}")
    if shortest:
        parts.append(f"events of {shortest:,} ns and longer")
    if not parts:
        return None
    return f"{', '.join(parts)} of a recording with {events:,} events"
