"""Convolutions whose weights are made of less, and windows that go one side after the other."""

from collections.abc import Iterator, Mapping
from typing import Any

from pinchpoint.capture.ways.other import Other, same

Given = Mapping[str, Any]
LEAST_WINDOW = 5  # a side: below it, two passes cost as much as one
LONG_WINDOW = 128  # over one dimension: below it, a transform costs more
LEAST_WORK = 1 << 22  # numbers that come out, times those of a window
RANK_ONE_RATIO = 1e-4  # of the largest number, that what is left beside one rank may have


def of_convolution(torch: Any, given: Given) -> Iterator[Other]:
    """One whose channels do not mix, whose window is a column times a row, or is long."""
    x, weight = given["input"], given["weight"]
    plain = not given["transposed"] and x.is_floating_point() and set(given["dilation"]) == {1}
    if not plain or x.numel() * weight[0, 0].numel() * weight.shape[1] < LEAST_WORK:
        return
    one_group, each = given["groups"] == 1, weight.shape[1] == 1
    if one_group and tuple(given["stride"]) == tuple(weight.shape[2:]) and _is_tiled(given):
        yield _of_patches(torch, given)
        return
    if one_group and not each and weight.shape[0] == weight.shape[1]:
        if (alone := _channels_alone(torch, weight)) is not None:
            yield _other(torch, "convolution-of-channels-alone", given, alone, x.shape[1])
    elif set(given["stride"]) != {1}:
        return
    elif x.dim() == 4 and each and min(weight.shape[2:]) >= LEAST_WINDOW:
        if (sides := _column_and_row(torch, weight)) is not None:
            yield _one_side_after_the_other(torch, given, *sides)
    elif x.dim() == 3 and weight.shape[-1] >= LONG_WINDOW and (each or one_group):
        yield _by_transforms(torch, given)


def _is_tiled(given: Given) -> bool:
    """Whether windows lie side by side, and cover all."""
    x, size = given["input"], given["weight"].shape[2:]
    whole = all(side % window == 0 for side, window in zip(x.shape[2:], size, strict=True))
    return whole and max(size) > 1 and not any(given["padding"])


def _of_patches(torch: Any, given: Given) -> Other:
    """As a product of all windows with the weights."""
    x, weight, bias = given["input"], given["weight"], given["bias"]
    size = tuple(weight.shape[2:])
    sides = [side // window for side, window in zip(x.shape[2:], size, strict=True)]
    cut = [n for both in zip(sides, size, strict=True) for n in both]
    dims = range(2, 2 + 2 * len(size))
    order = (0, *dims[::2], 1, *dims[1::2])  # places, then what is in a window

    def run() -> Any:
        patches = x.reshape(*x.shape[:2], *cut).permute(order).reshape(-1, weight[0].numel())
        found = torch.nn.functional.linear(patches, weight.flatten(1), bias)
        return found.view(len(x), *sides, -1).movedim(-1, 1)

    return Other("convolution-of-patches", run, lambda answer, it: same(torch, answer, it))


def _other(torch: Any, key: str, given: Given, weight: Any, groups: int) -> Other:
    x, bias = given["input"], given["bias"]
    how = (given["stride"], given["padding"], given["dilation"], False, given["output_padding"])
    return Other(
        key,
        lambda: torch.convolution(x, weight, bias, *how, groups),
        lambda answer, it: same(torch, answer, it),
    )


def _channels_alone(torch: Any, weight: Any) -> Any | None:
    """Weights of each channel for itself, where all others are zero."""
    count = weight.shape[0]
    there = (weight != 0).flatten(2).any(-1)
    mixed = there & ~torch.eye(count, dtype=torch.bool, device=weight.device)
    if bool(mixed.any()) or not bool(there.any()):
        return None
    at = torch.arange(count, device=weight.device)
    return weight[at, at].unsqueeze(1).contiguous()


def _column_and_row(torch: Any, weight: Any) -> tuple[Any, Any] | None:
    """Of windows that are a column times a row, both."""
    flat = weight[:, 0].float()
    u, s, v = torch.linalg.svd(flat, full_matrices=False)
    if not bool((s[:, 1] <= RANK_ONE_RATIO * s[:, 0]).all()) or not bool((s[:, 0] > 0).all()):
        return None
    root = s[:, 0].sqrt()[:, None]
    column, row = (u[..., 0] * root).to(weight.dtype), (v[:, 0] * root).to(weight.dtype)
    return column[:, None, :, None].contiguous(), row[:, None, None, :].contiguous()


def _one_side_after_the_other(torch: Any, given: Given, column: Any, row: Any) -> Other:
    x, bias, groups = given["input"], given["bias"], given["groups"]
    high, wide = given["padding"]

    def run() -> Any:
        once = torch.nn.functional.conv2d(x, column, None, padding=(high, 0), groups=groups)
        return torch.nn.functional.conv2d(once, row, bias, padding=(0, wide), groups=row.shape[0])

    key = "convolution-of-column-and-row"
    return Other(key, run, lambda answer, it: same(torch, answer, it))


def _by_transforms(torch: Any, given: Given) -> Other:
    x, weight, bias, pad = given["input"], given["weight"], given["bias"], given["padding"][0]
    groups, taps = given["groups"], weight.shape[-1]
    long = x.shape[-1] + 2 * pad
    length = _quick_length(long)

    def run() -> Any:
        padded = torch.nn.functional.pad(x.float(), (pad, pad))
        signal = torch.fft.rfft(padded, length)
        window = torch.fft.rfft(weight.float(), length)
        window = torch.conj_physical(window)  # what is put off, nothing resolves here
        if groups > 1 or weight.shape[1] == 1:
            times = weight.shape[0] // groups
            found = signal.repeat_interleave(times, 1) * window[:, 0]
        else:
            found = torch.einsum("bcf,ocf->bof", signal, window)
        found = torch.fft.irfft(found, length)[..., : long - taps + 1].to(x.dtype)
        return found if bias is None else found + bias[:, None]

    return Other("convolution-of-long-window", run, lambda answer, it: same(torch, answer, it))


def _quick_length(least: int) -> int:
    """The next length of factors 2, 3 and 5."""
    n = least
    while True:
        left = n
        for prime in (2, 3, 5):
            while left % prime == 0:
                left //= prime
        if left == 1:
            return n
        n += 1


def of_max_pool(torch: Any, given: Given) -> Iterator[Other]:
    """The largest of a large window that moves by one: of columns, then of rows."""
    x, size = given["self"], given["kernel_size"]
    high, wide = _both(size)
    stride = given.get("stride") or size
    overlaps = set(stride) == {1} and set(given.get("dilation") or (1,)) == {1}
    if x.dim() != 4 or not overlaps or min(high, wide) < LEAST_WINDOW:
        return
    if x.numel() * high * wide < LEAST_WORK or given.get("ceil_mode", False):
        return
    padding = given.get("padding") or (0,)
    above, beside = _both(padding)

    def run() -> Any:
        pool = torch.nn.functional.max_pool2d
        once = pool(x, (high, 1), 1, (above, 0))
        return pool(once, (1, wide), 1, (0, beside))

    yield Other("largest-of-large-window", run, lambda answer, it: same(torch, answer[0], it))


def of_mean_pool(torch: Any, given: Given) -> Iterator[Other]:
    """The mean of a large window that moves by one, likewise."""
    x, size = given["self"], given["kernel_size"]
    high, wide = _both(size)
    stride = given.get("stride") or size
    padding = given.get("padding") or (0,)
    if x.dim() != 4 or set(stride) != {1} or min(high, wide) < LEAST_WINDOW:
        return
    other = set(padding) != {0} and not given.get("count_include_pad", True)
    if x.numel() * high * wide < LEAST_WORK or given.get("ceil_mode", False) or other:
        return
    above, beside = _both(padding)

    def run() -> Any:
        pool = torch.nn.functional.avg_pool2d
        return pool(pool(x, (high, 1), 1, (above, 0)), (1, wide), 1, (0, beside))

    if not given.get("divisor_override"):
        yield Other("mean-of-large-window", run, lambda answer, it: same(torch, answer, it))


def _both(sides: Any) -> tuple[int, int]:
    """Of height and width, where one number may stand for both."""
    return sides[0], sides[-1]
