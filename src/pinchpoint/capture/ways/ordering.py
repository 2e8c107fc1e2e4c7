"""Sorting, counting and transforming numbers that hold less than their type could."""

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from pinchpoint.capture.ways.other import Other, same

Given = Mapping[str, Any]
LEAST_SORTED = 1 << 16  # numbers: fewer are a matter of calls
MOST_COUNTED = 1 << 24  # different numbers that counting has room for
_INT16, _INT32 = 1 << 15, 1 << 31


def _range(x: Any) -> tuple[int, int]:
    low, high = x.aminmax()
    return int(low), int(high)


def of_sort(torch: Any, given: Given) -> Iterator[Other]:
    """Whole numbers of 64 bits that fewer bits hold."""
    x = given["self"]
    if x.dtype is not torch.int64 or x.numel() < LEAST_SORTED:
        return
    low, high = _range(x)
    dtype = torch.int16 if low >= -_INT16 and high < _INT16 else torch.int32
    if dtype is torch.int32 and not (low >= -_INT32 and high < _INT32):
        return
    dim, down = given.get("dim", -1), given.get("descending", False)
    yield Other(
        "sort-of-small-numbers",
        lambda: torch.sort(x.to(dtype), dim=dim, descending=down),
        lambda answer, it: same(torch, answer[0], it[0]),
    )


def of_unique(torch: Any, given: Given) -> Iterator[Other]:
    """Which whole numbers of a small range are there."""
    x = given["self"]
    whole = not (x.is_floating_point() or x.is_complex() or x.dtype is torch.bool)
    if not whole or x.numel() < LEAST_SORTED:
        return
    low, high = _range(x)
    if low < 0 or high >= min(MOST_COUNTED, 4 * x.numel()):
        return
    flat, asked = x.reshape(-1), given.get("return_inverse", False)

    def run() -> Any:
        there = torch.bincount(flat, minlength=high + 1) > 0
        places = there.cumsum(0)[flat] - 1 if asked else None
        return there.nonzero().squeeze(1), places

    yield Other("unique-of-small-range", run, lambda answer, it: same(torch, answer[0], it[0]))


def of_unique_rows(torch: Any, given: Given) -> Iterator[Other]:
    """Different rows of whole numbers, as one number each."""
    x, dim = given["self"], given["dim"]
    whole = not (x.is_floating_point() or x.is_complex() or x.dtype is torch.bool)
    if not whole or x.dim() != 2 or dim not in (0, -2) or x.numel() < LEAST_SORTED:
        return
    low, high = x.amin(0), x.amax(0)
    sizes = [int(n) for n in (high - low + 1).tolist()]
    if prod(sizes) >= 1 << 62:
        return
    weights = [prod(sizes[at + 1 :]) for at in range(len(sizes))]
    times = torch.tensor(weights, device=x.device)

    def run() -> Any:
        return torch.unique(((x - low) * times).sum(1), return_inverse=True)

    def the_same(answer: Any, it: Any) -> bool:
        return len(answer[0]) == len(it[0])

    yield Other("unique-of-rows", run, the_same)


def of_transform(torch: Any, given: Given) -> Iterator[Other]:
    """A transform of complex numbers that are real."""
    x = given["self"]
    if x.numel() < LEAST_SORTED or not given.get("forward", True):
        return
    real = torch.view_as_real(x)
    if bool((real[..., 1] != 0).any()):
        return
    held, dims = real[..., 0].contiguous(), list(given["dim"])
    norm = (None, "ortho", "forward")[given["normalization"]]
    half = held.shape[dims[-1]] // 2 + 1
    yield Other(
        "transform-of-real",
        lambda: torch.fft.rfftn(held, dim=dims, norm=norm),
        lambda answer, it: same(torch, answer.narrow(dims[-1], 0, half), it),
    )
