"""Threads of the program that an exception ended: whatever else is said, that comes first."""

from pinchpoint.diagnosis.finding import Location
from pinchpoint.trace import Trace


def died(trace: Trace) -> str:
    """A sentence with a space behind it; empty where no thread did."""
    run = trace.run
    if run is None or not run.deaths:
        return ""
    first = run.deaths[0]
    file, line, function = first.place or ("", 0, "")
    where = f", in {Location(file=file, line=line, function=function)}" if first.place else ""
    more = run.deaths_count - 1
    others = f"; {more:,} more did later" if more else ""
    name = f"Thread {first.thread}" if first.thread else "A thread"
    return (
        f"{name} of the program was ended by {_ended(first.said)}{where},"
        f" {first.after_ns / 1e9:.3g} s after the program began{others}. "
    )


def _ended(said: str) -> str:
    return said.rstrip(".,; ")
