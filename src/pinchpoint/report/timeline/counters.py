"""Counters on the timeline: what changed while the recording ran, the most telling first."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinchpoint.monitor.sample import KNOWN_METRICS
from pinchpoint.report.plain import plain
from pinchpoint.report.quantity import quantity
from pinchpoint.trace import Table, Trace

MOST_COUNTERS = 6  # more push the lanes out of sight; the table of telemetry has them all
COUNTER_POINTS = 1000  # of one counter; of more, every n-th is drawn
_NOT_DRAWN = frozenset({"event_reasons"})  # bits, not a quantity
_LABEL_LIMIT = 60  # characters of the column of names
_UNITS = {"bytes/s": "bytes a second"}  # as report/quantity.py scales them


def counters_of(trace: Trace, start_ns: int, end_ns: int) -> list[dict[str, Any]]:
    """Series that vary between two times, with the sample before and the one after."""
    rows = trace.counters
    if rows is None or not len(rows):
        return []
    known = {name: order for order, name in enumerate(KNOWN_METRICS)}
    found = []
    for mine in _series(rows):
        name = trace.text(rows, "name", int(mine[0])) or ""
        mine = _between(rows["time_ns"], mine, start_ns, end_ns)
        if name in _NOT_DRAWN or len(mine) < 2:
            continue
        least, most = range_of(rows["value"][mine], name)
        if least != most:  # as far as a reader could tell
            found.append((known.get(name, len(known)), _drawn(rows, name, mine)))
    found.sort(key=lambda pair: pair[0])
    return [one for _, one in found[:MOST_COUNTERS]]


def _series(rows: Table) -> list[NDArray[np.intp]]:
    """Rows of one name and device each, without values that are no numbers."""
    key = np.stack((rows["name"].astype(np.int64), rows.filled("device", -1).astype(np.int64)))
    which = np.unique(key, axis=1, return_inverse=True)[1].reshape(-1)
    order = np.argsort(which, kind="stable")
    order = order[np.isfinite(rows["value"][order])]
    found = np.split(order, np.flatnonzero(np.diff(which[order])) + 1)
    return [mine for mine in found if len(mine)]


def _between(
    times: NDArray[np.int64], mine: NDArray[np.intp], start_ns: int, end_ns: int
) -> NDArray[np.intp]:
    first, last = np.searchsorted(times[mine], (start_ns, end_ns))
    mine = mine[max(int(first) - 1, 0) : int(last) + 1]
    return mine[:: max(len(mine) // COUNTER_POINTS, 1)]


def range_of(values: NDArray[np.float64], name: str) -> tuple[str, str]:
    """Least and most, as people read them."""
    about = KNOWN_METRICS.get(name)
    unit = about.unit if about else ""
    least, most = float(values.min()), float(values.max())
    return quantity(least, _UNITS.get(unit, unit)), quantity(most, _UNITS.get(unit, unit))


def _drawn(rows: Table, name: str, mine: NDArray[np.intp]) -> dict[str, Any]:
    about, device = KNOWN_METRICS.get(name), rows.value("device", int(mine[0]))
    label = about.label if about else name
    values = rows["value"][mine]
    return {
        "label": plain(label if device is None else f"{label} · device {device}", _LABEL_LIMIT),
        "range": " to ".join(range_of(values, name)),
        "least": min(float(values.min()), 0.0),
        "most": max(float(values.max()), 0.0),
        "times_ns": rows["time_ns"][mine].tolist(),
        "values": values.tolist(),
    }
