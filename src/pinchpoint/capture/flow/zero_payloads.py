"""Rows of zeros that ranks send each other, and the work on buffers with as many rows.

A buffer that is as large as the fullest part needs, or a gradient of which few rows were touched,
is mostly zeros, and is sent whole. In one of the watched steps what a rank sends is looked at on
the CPU, and so are the arguments of its other operations; of these count those with as many rows as
something that was sent, as far as their rows are zeros, too.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pinchpoint.capture.flow.operations import Kind
from pinchpoint.frozen import dataclass

LEAST_BYTES = 1 << 16  # of a tensor: smaller messages take as long as empty ones
LEAST_ROWS = 64
MOST_ROWS = 1024  # that are looked at, at even distances
MOST_COLUMNS = 256  # of each: a row that is zero there is zero but for an accident
OF_A_FLAT_ROW = 64  # elements of a buffer with one dimension, into which rows were laid
LEAST_RATIO = 0.3  # of the rows: below it, sending what is full takes as long as it wins
MOST_LOOKS = 400  # in a step, at 0.05 to 0.3 ms each
_RECEIVES = ("recv", "broadcast", "barrier", "scatter_")  # what is in it before is old
_GIVEN = ("input", "tensors")  # arguments of the others: what is sent
_PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")


@dataclass(frozen=True)
class Zeros:
    """Of one operation: rows of what it reads, and the share of them that is zeros."""

    rows: int
    ratio: float
    sent: bool


class ZeroPayloads:
    """Looks at operations of one step."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.looks = False
        self.seen: dict[int, Zeros] = {}  # by the operation's number in its step
        self._looks = 0

    def look(self, at: int, kind: Kind, args: Any, kwargs: Any) -> None:
        """At an operation that is about to run."""
        sent = kind.name.startswith("c10d::")
        work = kind.name in _PRODUCTS or kind.pointwise
        if not (self.looks and (sent or work)) or self._looks > MOST_LOOKS:
            return
        tensors = self._sent(kind, args, kwargs) if sent else [*_tensors(args, self._torch)]
        found = [zeros for one in tensors if (zeros := self._zeros(one, sent)) is not None]
        if found:  # work on rows goes by those of the operand that has most to leave out
            self.seen[at] = max(found, key=lambda zeros: zeros.ratio)

    def _sent(self, kind: Kind, args: Any, kwargs: Any) -> list[Any]:
        if kind.name.removeprefix("c10d::").startswith(_RECEIVES):
            return []
        named = dict(zip(kind.arguments, args, strict=False)) | kwargs
        given = [value for name, value in named.items() if name.startswith(_GIVEN)]
        return [*_tensors(given, self._torch)]

    def _zeros(self, tensor: Any, sent: bool) -> Zeros | None:
        torch = self._torch
        there = tensor.layout is torch.strided and tensor.device.type == "cpu"
        if not there or not tensor.is_floating_point() or tensor.nbytes < LEAST_BYTES:
            return None
        rows = _as_rows(tensor.detach())
        count = rows.numel() // rows.shape[-1]
        if count < LEAST_ROWS:
            return None
        self._looks += 1
        some = rows[
            (*_steps(rows.shape[:-1]), slice(None, None, -(-rows.shape[-1] // MOST_COLUMNS)))
        ]
        ratio = 1 - float((some != 0).any(dim=-1).double().mean())
        return Zeros(count, round(ratio, 6), sent) if ratio >= LEAST_RATIO else None


def _as_rows(tensor: Any) -> Any:
    """Its last dimension is what lies together in memory."""
    if tensor.dim() < 2:
        whole = tensor.numel() // OF_A_FLAT_ROW * OF_A_FLAT_ROW
        return tensor.reshape(-1)[:whole].reshape(-1, OF_A_FLAT_ROW)
    return tensor.permute(sorted(range(tensor.dim()), key=lambda d: -tensor.stride(d)))


def _steps(sizes: Sequence[int]) -> list[slice]:
    """At even distances, so that there are no more than so many rows; the longest side is left
    out of most."""
    left, steps = MOST_ROWS, [slice(None)] * len(sizes)
    for at in sorted(range(len(sizes)), key=lambda d: sizes[d]):
        taken = min(sizes[at], max(left, 1))
        steps[at] = slice(None, None, -(-sizes[at] // taken))
        left //= taken
    return steps


def _tensors(value: Any, torch: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one, torch)
