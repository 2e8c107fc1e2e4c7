"""The options that look at a part of a recording."""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from pinchpoint.analysis.steps.steps import steps as steps_of
from pinchpoint.cli.output import note
from pinchpoint.cli.parameter import Parameter
from pinchpoint.errors import UsageError
from pinchpoint.importers.files.memory import may_have
from pinchpoint.importers.health import Fact, health_table
from pinchpoint.regex import regex
from pinchpoint.trace import TABLES, Names, Trace, table
from pinchpoint.trace.window import Part, window

_UNITS = {"": 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "µs": 10**3, "ns": 1}
_TIME = regex(r"(\d{1,12}(?:\.\d{1,9})?)\s?(s|ms|us|µs|ns|)")


@Parameter(name="*")
@dataclass(frozen=True)
class Window:
    """Which part of the recording counts.

    Parameters
    ----------
    begin
        Only what happens from this time on, since the recording's first event: 1.5s, 200ms.
    end
        Only what happens before this time.
    step
        Only the step of this number, as its marker says or counted from 0.
    """

    begin: Annotated[str | None, Parameter(name="--from")] = None
    end: Annotated[str | None, Parameter(name="--to")] = None
    step: int | None = None

    @property
    def part(self) -> Part | None:
        """The part that is asked for."""
        if self.step is not None:
            return Part(0, None, step=self.step)
        if self.begin is None and self.end is None:
            return None
        begin = 0 if self.begin is None else _ns(self.begin, "--from")
        return Part(begin, None if self.end is None else _ns(self.end, "--to"))

    def cut(self, trace: Trace) -> Trace:
        """The part of a trace that is asked for; UsageError where there is none."""
        if self.step is not None:
            if self.begin or self.end:
                raise UsageError("--step is a window of its own", hint="without --from and --to")
            return _of_step(trace, self.step)
        if self.begin is None and self.end is None:
            return _bounded(trace)
        first, last = _span(trace)
        from_ns = first + (0 if self.begin is None else _ns(self.begin, "--from"))
        to_ns = last + 1 if self.end is None else first + _ns(self.end, "--to")
        if from_ns >= min(to_ns, last):
            raise UsageError(
                "nothing lies between --from and --to",
                hint=f"the recording lasts {(last - first) / 1e6:,.3f}ms",
            )
        return window(trace, from_ns, to_ns)


NO_WINDOW = Window()

# A trace of 5.1 GB has 13 million: its whole diagnosis held 6.7 GB and had not ended after two
# minutes of CPU; that of its middle held 3.4 GB and took one. Steps repeat, and half of them say
# the same.
MOST_EVENTS = 6_000_000
FEWEST_EVENTS = 100_000  # of some steps of a large model
# Memory at the peak of a diagnosis: 3.6 GB for the middle of that trace.
BYTES_OF_AN_EVENT = 600


def _bounded(trace: Trace) -> Trace:
    """The trace, or its middle where it has more events than a diagnosis is made of, or than there
    is memory for; said aloud."""
    events = sum(len(t) for t in (trace.host_ops, trace.api_calls, trace.device_ops) if t)
    most = min(events, MOST_EVENTS)
    while most > FEWEST_EVENTS and not may_have(BYTES_OF_AN_EVENT * most):
        most //= 2
    if events <= most:
        return trace
    first, last = _span(trace)
    begin = first + round((last - first) * (1 - most / events) / 2)
    end = last - (begin - first)
    if trace.steps is not None and len(trace.steps):
        marks = trace.steps["start_ns"]
        inside = marks[(marks >= begin) & (marks < end)]
        begin, end = (int(inside[0]), int(inside[-1])) if len(inside) > 1 else (begin, end)
    from_ms, to_ms = (begin - first) / 1e6, (end - first) / 1e6
    said = (
        f"{events:,} events: judged is its middle, from {from_ms:,.0f}ms to {to_ms:,.0f}ms of"
        f" {(last - first) / 1e6:,.0f}ms; --from 0ms judges all of it"
    )
    note(said)
    return _with_fact(window(trace, begin, end), events, said)


def _with_fact(trace: Trace, events: int, said: str) -> Trace:
    names = Names(trace.names)
    tables = [health_table([Fact("part-judged", events, said)], names)]
    if trace.health is not None and len(trace.health):
        tables.append(trace.health)
    columns = {name: np.concatenate([one[name] for one in tables]) for name in TABLES["health"]}
    missing = {"time_ns": np.concatenate([~one.known("time_ns") for one in tables])}
    return replace(trace, health=table("health", columns, missing), names=names.freeze())


def _ns(text: str, option: str) -> int:
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{option} {text}: not a time", hint=f"{option} 1.5s, or {option} 200ms")
    return round(float(match[1]) * _UNITS[match[2]])


def _span(trace: Trace) -> tuple[int, int]:
    tables = [t for t in (trace.host_ops, trace.api_calls, trace.device_ops) if t and len(t)]
    if trace.source.first_ns is not None:
        last = max((int(t.end_ns.max()) for t in tables), default=trace.source.first_ns)
        return trace.source.first_ns, last
    if not tables and trace.snapshot is not None:
        raise UsageError(
            f"{_history(trace)}, and is judged whole: what is held at one time was asked for long"
            " before",
            hint=f"without --from and --to; pinchpoint memory {trace.source.path} shows the peak,"
            " when it was and who held it",
        )
    if not tables:
        raise UsageError("the recording has no events in time", hint="without --from and --to")
    return min(int(t["start_ns"][0]) for t in tables), max(int(t.end_ns.max()) for t in tables)


def _history(trace: Trace) -> str:
    """What a memory snapshot covers, in words."""
    rows = trace.allocations
    if rows is None or len(rows) < 2 or not (lasts := int(np.ptp(rows["time_ns"]))):
        return "a memory snapshot without a history in time"
    return f"a memory snapshot whose history lasts {lasts / 1e6:,.3f}ms"


def _of_step(trace: Trace, number: int) -> Trace:
    steps = steps_of(trace)
    at = np.flatnonzero(steps.number == number)
    if steps.how == "none" or not len(at):
        there = f"{steps.number[0]} to {steps.number[-1]}" if steps.how != "none" else "none"
        raise UsageError(f"--step {number}: no such step", hint=f"steps of the recording: {there}")
    return window(trace, int(steps.host_start_ns[at[0]]), int(steps.host_end_ns[at[0]]))
