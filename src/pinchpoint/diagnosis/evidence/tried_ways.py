"""What is said of ways that a run tried in place of an operator: ``tried_ways.json``.

``capture/ways`` tries them on the program's own arguments, and writes their keys.
"""

from functools import cache
from pathlib import Path

import msgspec

from pinchpoint.diagnosis.finding import Location
from pinchpoint.trace import Trace
from pinchpoint.trace.run_values import TriedAt


class TriedWay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the table."""

    key: str
    what: str  # after the operator's name
    instead: str  # an imperative
    hint: str  # code that shows it
    only_where: str = ""  # a condition that its arguments do not show; empty: it holds everywhere


class _File(msgspec.Struct, frozen=True):
    way: tuple[TriedWay, ...]


@cache
def tried_ways() -> dict[str, TriedWay]:
    """All entries, by their keys."""
    read = msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=_File)
    return {one.key: one for one in read.way}


def tried_in(trace: Trace, place: Location | None) -> tuple[TriedWay, TriedAt] | None:
    """The way that wins most in the function of a line, of calls that are in no watched step."""
    values = None if trace.run is None else trace.run.values
    if values is None or place is None:
        return None
    here = [
        one
        for one in values.rare
        if (one.place[0], one.place[2]) == (place.file, place.function) and one.way in tried_ways()
    ]
    best = max(here, key=lambda one: (1 - one.left_ratio) * one.tried_ns, default=None)
    return None if best is None else (tried_ways()[best.way], best)
