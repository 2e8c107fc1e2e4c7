"""A trace in a notebook: where it is from, and how many rows its tables have."""

from html import escape
from typing import TYPE_CHECKING

from pinchpoint.trace.table import Table

if TYPE_CHECKING:
    from pinchpoint.trace.trace import Trace

LONGEST = 200  # characters of a text from the file; more breaks the layout and says no more
MOST_DEVICES = 8  # as many as a host usually has


def render(trace: "Trace") -> str:
    """A small table as HTML; every text from the file is one escaped, printable line."""
    facts = {
        "recording": trace.source.path,
        "format": trace.source.format,
        "from": trace.source.producer,
        "devices": ", ".join(d.name or f"device {d.number}" for d in trace.devices[:MOST_DEVICES]),
        "rank": None if trace.rank is None else f"{trace.rank} of {trace.world_size or 'unknown'}",
    }
    rows = [(what, value) for what, value in facts.items() if value]
    tables = {name: value for name, value in vars(trace).items() if isinstance(value, Table)}
    rows += [(name, f"{len(table):,} rows") for name, table in tables.items()]
    cells = "".join(f"<tr><th>{what}</th><td>{_safe(value)}</td></tr>" for what, value in rows)
    return f"<table>{cells}</table>"


def _safe(text: str) -> str:
    cut = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return escape("".join(c if c.isprintable() else "\ufffd" for c in cut))
