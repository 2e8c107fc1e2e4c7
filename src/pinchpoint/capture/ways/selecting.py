"""Selecting from long rows, running sums across rows, and additions to rows in 16 bits."""

from collections.abc import Iterator, Mapping
from typing import Any

from pinchpoint.capture.ways.other import Other, same

Given = Mapping[str, Any]
LONG_ROW = 1 << 16  # numbers: a block of a device goes through one row
PIECES = 64  # of a long row, of each of which the largest are taken first
MOST_TAKEN_RATIO = 1 / 16  # of a piece
LEAST_COLUMNS = 16  # next to each other in memory, across which a sum runs


def of_topk(torch: Any, given: Given) -> Iterator[Other]:
    """The largest of few long rows, by pieces first."""
    x, k = given["self"], given["k"]
    last = given.get("dim", -1) in (-1, x.dim() - 1)
    if x.dim() < 1 or not last or x.shape[-1] < LONG_ROW or x.shape[-1] % PIECES:
        return
    if k > MOST_TAKEN_RATIO * x.shape[-1] / PIECES or not given.get("largest", True):
        return

    def run() -> Any:
        some, at = x.unflatten(-1, (PIECES, -1)).topk(k, dim=-1)
        first = torch.arange(PIECES, device=x.device).unsqueeze(1) * (x.shape[-1] // PIECES)
        values, which = some.flatten(-2).topk(k, dim=-1)
        return values, (at + first).flatten(-2).gather(-1, which)

    yield Other("largest-by-pieces", run, lambda answer, it: same(torch, answer[0], it[0]))


def of_kth(torch: Any, given: Given) -> Iterator[Other]:
    """``kthvalue`` of long rows, which are searched by one block each, by a sort."""
    x = given["self"]
    if given.get("dim", -1) not in (-1, x.dim() - 1) or x.shape[-1] < LONG_ROW:
        return
    at = given["k"] - 1
    yield Other(
        "kth-by-sort",
        lambda: x.sort(dim=-1)[0].select(-1, at),
        lambda answer, it: same(torch, answer[0].reshape(it.shape), it),
    )


def of_median(torch: Any, given: Given) -> Iterator[Other]:
    """The median of all numbers likewise."""
    x = given["self"]
    if "dim" in given or x.numel() < LONG_ROW:
        return
    yield Other(
        "kth-by-sort",
        lambda: x.flatten().sort()[0][(x.numel() - 1) // 2],
        lambda answer, it: same(torch, answer, it),
    )


def of_running_sum(torch: Any, given: Given) -> Iterator[Other]:
    """A running sum or product that is not over the last dimension, in the order of memory."""
    x, dim = given["self"], given["dim"] % max(given["self"].dim(), 1)
    across = x.dim() > 1 and dim < x.dim() - 1 and x.is_contiguous()
    if not across or x.shape[-1] < LEAST_COLUMNS or not x.is_floating_point():
        return
    yield Other(
        "running-sum-in-order",
        lambda: x.transpose(dim, -1).contiguous().cumsum(-1).transpose(dim, -1),
        lambda answer, it: same(torch, answer, it),
    )


def of_row_additions(torch: Any, given: Given) -> Iterator[Other]:
    """Additions to rows by their numbers in 16 bits, where devices add in 32 at once."""
    x, source = given["self"], given.get("source", given.get("src"))
    few = (torch.float16, torch.bfloat16)
    if x.dtype not in few or not isinstance(source, torch.Tensor):
        return
    dim, index, scatters = given["dim"], given["index"], "src" in given

    def run() -> Any:
        add = torch.scatter_add if scatters else torch.index_add
        return add(x.float(), dim, index, source.float()).to(x.dtype)

    yield Other("additions-in-32-bits", run, lambda answer, it: same(torch, answer, it))
