"""What is said of ways that a run tried in place of an operator: ``tried_ways.json``.

``capture/ways`` tries them on the program's own arguments, and writes their keys.
"""

from functools import cache
from pathlib import Path

import msgspec


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
