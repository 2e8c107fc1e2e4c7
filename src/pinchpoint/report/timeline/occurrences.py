"""Where each finding happens: every row of the trace that its fix would change."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.replay.changes import (
    AddHostTime,
    DropSyncs,
    RemoveHostTime,
    RemoveRecordingCost,
    ScaleHostSpans,
)
from pinchpoint.diagnosis.finding import Found

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Rows by table, and stretches of time that are no rows."""

    rows: dict[str, Numbers] = field(default_factory=dict)
    start_ns: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    end_ns: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return sum(len(rows) for rows in self.rows.values()) + len(self.start_ns)


def occurrences(finding: Found) -> Occurrences:
    """What the changes of a finding touch; empty where it has none, as those about memory."""
    rows: dict[str, list[Numbers]] = {}
    starts: list[Numbers] = []
    ends: list[Numbers] = []
    for change in finding.changes:
        match change:
            case RemoveRecordingCost() | AddHostTime():  # no place that the fix would change
                continue
            case RemoveHostTime(start_ns=start, end_ns=end):
                starts.append(np.asarray(start, np.int64))
                ends.append(np.asarray(end, np.int64))
            case DropSyncs(api_calls=calls):
                rows.setdefault("api_calls", []).append(np.asarray(calls, np.int64))
            case ScaleHostSpans(host_ops=spans):
                rows.setdefault("host_ops", []).append(np.asarray(spans, np.int64))
            case _:
                rows.setdefault("device_ops", []).append(np.asarray(change.device_ops, np.int64))
    found = {table: np.unique(np.concatenate(parts)) for table, parts in rows.items()}
    if not starts:
        return Occurrences(found)
    return Occurrences(found, np.concatenate(starts), np.concatenate(ends))
