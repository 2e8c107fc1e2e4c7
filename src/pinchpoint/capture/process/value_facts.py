"""What the values of tensors say that shapes do not: padding, and masks that a flag expresses.

Each function starts a few small operations where the tensor lies, and returns a short vector of
whole numbers there, which is read at the end. The values themselves are not kept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from itertools import pairwise
from typing import Any

from pinchpoint.frozen import dataclass

MOST_ELEMENTS = 1 << 20  # looked at of one tensor: temporary memory of 8 MiB, 0.2 s of a CPU
SHORTEST = 8  # positions of a row: shorter ones are pairs, boxes, keys
FEWEST_ROWS = 2  # that must agree where nothing but values tells: one row ends in anything
SHORTEST_RUN = 2  # of one value at the end of a row: every row has one of length 1
HIDDEN_BELOW = -1e4  # added to a score: exp() of it is 0 in every type; float16 ends at -6.5e4
QUANTILES = 16  # the lengths of rows are kept as so many stretches of equal weight
IGNORED = -100  # ignore_index of torch's losses
MOST_DEPTH, MOST_LEAVES = 4, 64  # of nested arguments: models have a dozen tensors


@dataclass(frozen=True)
class Pending:
    """Numbers that lie on a device still, and what they become once they were read."""

    numbers: Any  # a vector of int64
    note: Callable[[Sequence[int]], dict[str, Any] | None]


@dataclass(frozen=True)
class Leaf:
    """A tensor among arguments; ``name``: of the argument or key, empty without one."""

    name: str
    tensor: Any


@dataclass
class Leaves:
    """Plain tensors in nested arguments."""

    torch: Any
    found: list[Leaf] = field(default_factory=list)

    def add(self, value: Any, name: str = "", depth: int = 0) -> None:
        """Take what is in a value; what is unknown, nested, sparse or lazy is left alone."""
        if len(self.found) >= MOST_LEAVES or depth > MOST_DEPTH:
            return
        if isinstance(value, self.torch.Tensor):
            plain = type(value) is self.torch.Tensor and not value.is_nested
            if plain and value.layout is self.torch.strided:
                self.found.append(Leaf(name, value.detach()))
            return
        for key, inside in _items(value):
            self.add(inside, key or name, depth + 1)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), inside) for key, inside in list(value.items())[:MOST_LEAVES])
    elif isinstance(value, list | tuple):
        yield from (("", inside) for inside in value[:MOST_LEAVES])
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((one.name, getattr(value, one.name, None)) for one in fields(value))


# ------------------------------------------------------------------------------------------------
# Padding of batches.


def padding(torch: Any, leaves: Sequence[Leaf]) -> Iterator[Pending]:
    """What the tensors of one call say, the best evidence first: masks, ids, frames."""
    others = []
    for leaf in leaves:
        if (real := row_mask(torch, leaf)) is not None:
            yield _of_mask(torch, leaf, real)
        else:
            others.append(leaf)
    for leaf in others:
        shape = tuple(leaf.tensor.shape)
        whole = not leaf.tensor.is_floating_point() and leaf.tensor.dtype is not torch.bool
        if len(shape) == 2 and whole and shape[1] >= SHORTEST:
            yield _of_runs(torch, leaf, "ids")
    for leaf in others:
        shape = tuple(leaf.tensor.shape)
        if len(shape) == 3 and leaf.tensor.is_floating_point() and min(shape[1:]) >= SHORTEST:
            yield _of_runs(torch, leaf, "frames")


def row_mask(torch: Any, leaf: Leaf) -> Any | None:
    """Of a mask [B, T] or [B, 1, 1, T] what is there; None for other tensors."""
    x = leaf.tensor
    if x.dim() == 4 and tuple(x.shape[1:3]) == (1, 1):
        x = x[:, 0, 0]
    if x.dim() != 2 or x.shape[1] < SHORTEST or not x.shape[0]:
        return None
    if x.dtype is torch.bool:
        return ~x if "pad" in leaf.name.lower() else x  # as torch names masks of what is not there
    if "mask" not in leaf.name.lower():
        return None
    return x != 0 if not x.is_floating_point() else (x > HIDDEN_BELOW) & (x != 0) | _additive(x)


def _additive(x: Any) -> Any:
    """What an additive mask lets through; a mask of ones and zeros is none."""
    return (x == 0) & (x.amin() <= HIDDEN_BELOW)


def _of_mask(torch: Any, leaf: Leaf, real: Any) -> Pending:
    real, rows = sampled(real)
    width = real.shape[1]
    at = torch.arange(width, device=real.device)
    count = real.sum(1)
    last = torch.where(real, at, -1).amax(1)
    first = torch.where(real, at, width).amin(1)
    whole = tuple(leaf.tensor.shape)

    def note(numbers: Sequence[int]) -> dict[str, Any] | None:
        lengths, firsts, lasts = _columns(numbers, 3)
        side = contiguous(lengths, firsts, lasts, width)
        if side is None:
            return None
        return _note("mask", leaf.name, (whole[0], width), lengths, rows) | {"side": side}

    return Pending(torch.cat((count, first, last)), note)


def contiguous(
    lengths: Sequence[int], firsts: Sequence[int], lasts: Sequence[int], width: int
) -> str | None:
    """On which side rows are padded; None where what is there is in pieces, or in the middle."""
    found = [(n, a, b) for n, a, b in zip(lengths, firsts, lasts, strict=True) if n]
    if not found or any(n != b - a + 1 for n, a, b in found):
        return None
    if all(a == 0 for _, a, _ in found):
        return "right"
    return "left" if all(b == width - 1 for _, _, b in found) else None


def _of_runs(torch: Any, leaf: Leaf, evidence: str) -> Pending:
    """Rows that end, or begin, in runs of one value (or of one frame) that they share."""
    x, rows = sampled(leaf.tensor)
    width = x.shape[1]
    at = torch.arange(width, device=x.device)
    parts: list[Any] = []
    for end in (x[:, -1:], x[:, :1]):
        other = x != end
        other = other.any(2) if other.dim() == 3 else other
        right = torch.where(other, at, -1).amax(1)
        left = torch.where(other, at, width).amin(1)
        run = width - 1 - right if not parts else left
        longest = end.index_select(0, run.argmax().view(1))
        parts += [run, (end == longest).flatten(1).all(1).long()]
    ignored = (x == IGNORED).sum().view(1) if evidence == "ids" else at[:1] * 0
    whole = tuple(leaf.tensor.shape)

    def note(numbers: Sequence[int]) -> dict[str, Any] | None:
        right, end_alike, left, start_alike = _columns(numbers[:-1], 4)
        found = run_lengths(right, end_alike, left, start_alike, width)
        if numbers[-1]:  # labels: what the loss leaves out is no padding of what is computed
            return {
                "evidence": "labels",
                "name": leaf.name,
                "rows": whole[0],
                "width": width,
                "ignored_ratio": round(numbers[-1] / max(len(right) * width, 1), 4),
            }
        if found is None:
            return None
        return _note(evidence, leaf.name, (whole[0], width), found[1], rows) | {"side": found[0]}

    return Pending(torch.cat((*parts, ignored)), note)


def run_lengths(
    right: Sequence[int],
    end_alike: Sequence[int],
    left: Sequence[int],
    start_alike: Sequence[int],
    width: int,
) -> tuple[str, list[int]] | None:
    """The side of the padding and the length of each row; None where rows do not show any.

    Most rows must end in the same value, or several in a run of it, and no tensor is all one value.
    """
    sides = {}
    for side, runs, alike in (("right", right, end_alike), ("left", left, start_alike)):
        pads = [r if a and r >= SHORTEST_RUN else 0 for r, a in zip(runs, alike, strict=True)]
        if sum(p > 0 for p in pads) >= FEWEST_ROWS and min(pads) < width:
            sides[side] = pads
    if not sides:
        return None
    best = max(sides, key=lambda side: sum(sides[side]))
    return best, [width - pad for pad in sides[best]]


def _note(
    evidence: str, name: str, size: tuple[int, int], lengths: Sequence[int], rows: int
) -> dict[str, Any]:
    ordered = sorted(lengths)
    last = len(ordered) - 1
    return {
        "evidence": evidence,
        "name": name,
        "rows": size[0],
        "width": size[1],
        "rows_read": rows,
        "real_ratio": round(sum(ordered) / max(len(ordered) * size[1], 1), 5),
        "mean_length": round(sum(ordered) / max(len(ordered), 1), 2),
        "lengths": [ordered[round(last * i / QUANTILES)] for i in range(QUANTILES + 1)],
    }


def sampled(x: Any) -> tuple[Any, int]:
    """Rows at even distances, so that few enough elements are looked at; and how many."""
    row = x[0].numel() if len(x) else 0
    fit = max(MOST_ELEMENTS // max(row, 1), 1)
    step = -(-len(x) // fit)
    found = x[::step] if step > 1 else x
    return found, len(found)


def _columns(numbers: Sequence[int], count: int) -> list[Sequence[int]]:
    size = len(numbers) // count
    return [numbers[i * size : (i + 1) * size] for i in range(count)]


# ------------------------------------------------------------------------------------------------
# Masks of attention.

_MASK_FACTS = (
    "plain",
    "causal",
    "before_padding",
    "whole",
    "same_rows",
    "real",
    "read",
    "band_left",
    "band",
)


def attention_mask(torch: Any, mask: Any) -> Pending:
    """What a mask [..., queries, keys] hides: booleans, or numbers that are added to the scores."""
    shape = tuple(mask.shape)
    queries, keys = shape[-2:]
    flat = mask.detach().expand(shape).reshape(-1, queries, keys) if mask.dim() > 2 else mask[None]
    matrices = max(min(len(flat), MOST_ELEMENTS // max(queries * keys, 1)), 1)
    flat = flat[:: -(-len(flat) // matrices)]
    step = -(-queries * keys * len(flat) // MOST_ELEMENTS)
    last = _lets_through(torch, flat[:, -1:])
    flat, at = flat[:, ::step], torch.arange(0, queries, step, device=mask.device)[:, None]
    real = _lets_through(torch, flat)
    plain = (real == flat if mask.dtype is torch.bool else real | (flat <= HIDDEN_BELOW)).all()
    key = torch.arange(keys, device=mask.device)
    below = key <= at
    reach = torch.where(real, at - key, -1).amax()  # keys behind the query that are seen
    facts = (
        plain,
        (real == below).all(),
        (real == (below & last)).all() & (last[..., :-1] | ~last[..., 1:]).all(),
        real.all(),
        (real == real[:, :1]).all(),
        real.sum(),
        torch.full_like(reach, real.numel()),
        reach,
        (real == (below & (at - key <= reach))).all(),
    )
    numbers = torch.stack([one.long() for one in facts])

    def note(read: Sequence[int]) -> dict[str, Any]:
        facts = dict(zip(_MASK_FACTS, read, strict=True))
        return {
            "kind": mask_kind(facts, queries, keys),
            "real_ratio": round(facts["real"] / max(facts["read"], 1), 5),
            "rows_read": len(at) * len(flat),
            "rows_there": _product(shape[:-1]),
            "band": facts["band_left"] + 1 if facts["band"] else None,
        }

    return Pending(numbers, note)


def _lets_through(torch: Any, mask: Any) -> Any:
    return mask if mask.dtype is torch.bool else mask == 0


def mask_kind(facts: Mapping[str, int], queries: int, keys: int) -> str:
    """In one word, by its values."""
    if not facts["plain"]:
        return "values"  # a bias: a flag cannot say it
    if facts["whole"]:
        return "nothing hidden"
    if facts["causal"]:
        return "causal"
    if facts["before_padding"] and queries == keys > 1:
        return "causal before padding"  # padding on the right, that no token before it sees
    if facts["same_rows"]:
        return "padding"
    if facts["band"] and facts["band_left"] + 1 < min(queries, keys):
        return "banded"
    return "other"


def _product(sizes: Sequence[int]) -> int:
    found = 1
    for size in sizes:
        found *= size
    return found


# ------------------------------------------------------------------------------------------------
# Labels of a loss.


def ignored_labels(target: Any, ignored: int) -> Pending:
    """How many of the class numbers in a target are the one that the loss leaves out."""
    read, _ = sampled(target.detach().reshape(-1, 1))
    count = read.numel()

    def note(numbers: Sequence[int]) -> dict[str, Any]:
        return {"ignored_ratio": round(numbers[0] / max(count, 1), 5)}

    return Pending((read == ignored).sum().view(1), note)


def read(torch: Any, pending: Sequence[Pending]) -> list[dict[str, Any] | None]:
    """What all of them became, with one read for each device."""
    by_device: dict[Any, list[int]] = {}
    for number, one in enumerate(pending):
        by_device.setdefault(one.numbers.device, []).append(number)
    found: list[dict[str, Any] | None] = [None] * len(pending)
    for numbers in by_device.values():
        values = torch.cat([pending[n].numbers for n in numbers]).tolist()
        ends = [0]
        for n in numbers:
            ends.append(ends[-1] + len(pending[n].numbers))
        for n, (start, end) in zip(numbers, pairwise(ends), strict=True):
            found[n] = pending[n].note(values[start:end])
    return found
