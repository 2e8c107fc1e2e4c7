"""Words about Python that runs at a place, and what to do about it."""

from pinchpoint.analysis.run import run_facts
from pinchpoint.trace import Trace

NO_NAME = {
    "<lambda>": "a lambda",
    "<listcomp>": "a list comprehension",
    "<dictcomp>": "a dict comprehension",
    "<setcomp>": "a set comprehension",
    "<genexpr>": "a generator expression",
}


def without_tracer(trace: Trace) -> str:
    """What comes before any advice where every line is reported to a debugger or another tool."""
    name = run_facts(trace).line_tracer
    return f"Run without {name}, which every line is reported to. Then: " if name else ""


_OTHER_LIBRARIES = ("np.", "numpy.", "scipy.", "pd.", "pandas.")  # with functions of such names


def runs_an_operator(trace: Trace, call: str) -> bool:
    """Whether a call has the name of an operator that was recorded: ``scores.argmax()``."""
    if call.startswith(_OTHER_LIBRARIES):
        return False
    return f"aten::{call.removesuffix('()').rpartition('.')[2]}" in trace.names
