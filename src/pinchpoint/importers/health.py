"""What a file itself shows to be wrong or missing: the facts importers may state.

Each id has the sentence for people and the severity that it has by default.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pinchpoint.trace import Names, Severity, Table, empty_table, table


@dataclass(frozen=True)
class FactKind:
    """One kind of health fact."""

    severity: Severity
    sentence: str


FACTS: dict[str, FactKind] = {
    "telemetry-no-value": FactKind(
        Severity.NOTE, "the device or driver did not give a value that was asked for"
    ),
    "telemetry-torn-lines": FactKind(
        Severity.NOTE, "lines of the log are cut off or hold messages, and were left out"
    ),
    "telemetry-without-time": FactKind(
        Severity.WARNING, "samples carry no time, so only their order is known"
    ),
    "times-unsound": FactKind(
        Severity.WARNING, "events whose times make no sense were left out (buffers overflowed)"
    ),
    "launches-missing": FactKind(
        Severity.NOTE, "device operations whose launching call is not in the file"
    ),
    "graphs-opaque": FactKind(
        Severity.WARNING,
        "CUDA graphs were recorded as a whole: what runs inside them is not known "
        "(record with nsys profile --cuda-graph-trace=node)",
    ),
    "no-device-activity": FactKind(Severity.WARNING, "the file has no device operation"),
    "rows-cut": FactKind(Severity.WARNING, "rows of the table are cut off and were left out"),
    "ranges-unclosed": FactKind(Severity.NOTE, "ranges that were open when recording stopped"),
    "profiler-warning": FactKind(Severity.WARNING, "the profiler warns"),
}


@dataclass(frozen=True)
class Fact:
    """One fact about one file. ``detail`` defaults to the sentence of its kind."""

    id: str
    count: int = 1
    detail: str = ""
    time_ns: int | None = None


def health_table(facts: Sequence[Fact], names: Names) -> Table:
    """The facts as the ``health`` table; empty if there are none."""
    if not facts:
        return empty_table("health")
    return table(
        "health",
        {
            "fact": np.array(names.ids_of(f.id for f in facts), np.int32),
            "severity": np.array([FACTS[f.id].severity for f in facts], np.uint8),
            "count": np.array([f.count for f in facts], np.int64),
            "detail": np.array(names.ids_of(f.detail or FACTS[f.id].sentence for f in facts)),
            "time_ns": np.array([f.time_ns or 0 for f in facts], np.int64),
        },
        {"time_ns": np.array([f.time_ns is None for f in facts])},
    )
