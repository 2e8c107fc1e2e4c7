"""Calls of models, of attention and of losses whose tensors are looked at, and what is noted."""

from collections.abc import Collection, Sequence
from typing import Any

from pinchpoint.capture.process.value_facts import Pending, read
from pinchpoint.frozen import dataclass


@dataclass
class Call:
    """Tensors of one call of a model, or of one batch of a loader."""

    place: tuple[str, int, str] | None
    source: str  # module or loader
    model: str
    pending: list[Pending]


@dataclass
class Attention:
    """Calls of attention at one place with one mask."""

    place: tuple[str, int, str] | None
    queries: tuple[int, ...]
    mask: tuple[int, ...]
    dtype: str
    key: int  # which of the masks
    calls: int = 0


@dataclass
class Loss:
    """Calls of a loss at one place, with class numbers for so many rows."""

    place: tuple[str, int, str] | None
    rows: int
    classes: int
    pending: Pending
    calls: int = 0


def notes(
    torch: Any,
    calls: Sequence[Call],
    batches: Sequence[Call],
    attention: Collection[Attention],
    masks: Sequence[Pending],
    losses: Collection[Loss],
) -> dict[str, Any]:
    """Read everything at once, and put it beside its place: the batches that loaders gave where
    calls of models told nothing."""
    told = any(call.pending for call in calls)
    given = calls if told or not batches else batches
    pending = [one for call in given for one in call.pending]
    found = read(torch, [*pending, *(one.pending for one in losses), *masks])
    each, facts = iter(found), found[len(pending) + len(losses) :]
    return {
        "batches": [
            {"place": call.place, "source": call.source, "model": call.model}
            | {"tensors": [note for _ in call.pending if (note := next(each)) is not None]}
            for call in given
        ],
        "losses": [
            {"place": one.place, "calls": one.calls, "rows": one.rows, "classes": one.classes}
            | (next(each) or {})
            for one in losses
        ],
        "attention": [
            {"place": one.place, "calls": one.calls, "queries": one.queries, "mask": one.mask}
            | {"dtype": one.dtype}
            | (facts[one.key] or {})
            for one in attention
        ],
    }
