"""From rows of a trace to the place in the program that a finding names."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.source_lines import Place, place_of
from pinchpoint.diagnosis.finding import Location
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Rows


def location_of(trace: Trace, host_op: int) -> Location | None:
    """Where a row of ``host_ops`` belongs; None where the trace does not say."""
    found = place_of(trace, host_op)
    return None if found == Place() else _location(found)


def busiest_place(
    trace: Trace, host_ops: Rows, weight: NDArray[np.int64]
) -> tuple[Location | None, Rows]:
    """The place with most weight among rows, and the positions in ``host_ops`` that are there.

    Rows at ``len(trace.host_ops)`` have no place.
    """
    places: dict[Location | None, list[int]] = {}
    total: dict[Location | None, int] = {}
    known: dict[int, Location | None] = {}
    rows = 0 if trace.host_ops is None else len(trace.host_ops)
    for position, row in enumerate(host_ops.tolist()):
        if row not in known:
            known[row] = location_of(trace, row) if row < rows else None
        place = known[row]
        places.setdefault(place, []).append(position)
        total[place] = total.get(place, 0) + int(weight[position])
    if not total:
        return None, np.zeros(0, np.intp)
    best = max(total, key=lambda place: total[place])
    return best, np.array(places[best], np.intp)


def _location(place: Place) -> Location:
    return Location(place.file, place.line, place.function, place.module, place.operator)
