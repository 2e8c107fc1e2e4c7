"""Stacks by number become rows of a document."""

from collections.abc import Iterable
from typing import Any

from pinchpoint.capture.samples.stacks import StackTable

_PARTS_OF_A_THREAD = ("stacks", "spent", "waits")


def numbers_of(sampled: dict[str, Any]) -> list[int]:
    """The stacks of all threads."""
    rows = [
        row for thread in _threads(sampled) for part in _PARTS_OF_A_THREAD for row in thread[part]
    ]
    return [row[0] for row in [*rows, *sampled["start"]]]


def spell(
    table: StackTable, sampled: dict[str, Any], more: Iterable[int] = ()
) -> tuple[dict[str, Any], dict[int, int]]:
    """Frames and stacks of a document, and the row of each stack; in ``sampled`` numbers become
    rows, and stacks that are not known are left out."""
    frames, stacks, doing = table.spelt([*numbers_of(sampled), *more])
    rows = {number: row for row, number in enumerate(stacks)}
    for thread in _threads(sampled):
        for part in _PARTS_OF_A_THREAD:
            thread[part] = in_rows(thread[part], rows)
    sampled["start"] = in_rows(sampled["start"], rows)
    return {"frames": frames, "stacks": list(stacks.values()), "doing": doing}, rows


def in_rows(seen: Iterable[Any], rows: dict[int, int]) -> list[list[Any]]:
    """Each number at the front as the row of its stack."""
    return [[rows[number], *rest] for number, *rest in seen if number in rows]


def _threads(sampled: dict[str, Any]) -> list[dict[str, Any]]:
    before = sampled["before"]
    return [*sampled["threads"], *([] if before is None else [before])]
