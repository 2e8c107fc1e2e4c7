"""What the numbers of a matrix show: symmetric, triangular, diagonal, few of them not zero."""

from typing import Any

from pinchpoint.frozen import dataclass

LEAST_SIDE = 16  # of a matrix; of smaller ones calls cost more than work
SAME_RATIO = 1e-5  # of the largest number: as sums in another order leave a symmetric matrix
SAMPLED_SIDE = 64  # rows and columns, at even distances, before all of a matrix is looked at
MOST_LOOKED_AT = 1 << 26  # elements: 1 ms of a device's memory, 0.1 s of a CPU's
MOST_COUNTED_ON_DEVICE = 1 << 28  # elements that are counted, and not looked at in turn
ORTHOGONAL_WITHIN = 1e-4  # rotations that are made of others in single precision
FEW_RATIO = 0.02  # of the numbers not zero: below it sparse products are quicker than dense ones


@dataclass(frozen=True)
class Structure:
    """Of all matrices of a batch. A multiple of the identity has none: states begin as one."""

    symmetric: bool = False
    diagonal: bool = False
    lower: bool = False  # nothing above the diagonal
    upper: bool = False
    few: bool = False  # FEW_RATIO of its numbers, at most, are not zero


NONE = Structure()


def structure(torch: Any, a: Any) -> Structure:
    """Of square matrices; of what is not finite, or the same on the diagonal alone, none."""
    if a.shape[-1] != a.shape[-2] or a.shape[-1] < LEAST_SIDE or a.numel() > MOST_LOOKED_AT:
        return NONE
    size = a.abs()
    scale = size.amax()
    above, below = (size.triu(1) > 0).any(), (size.tril(-1) > 0).any()
    on = a.diagonal(dim1=-2, dim2=-1)
    alike = ((on - on[..., :1]).abs() <= SAME_RATIO * scale).all()
    symmetric = ((a - a.mT).abs().amax() <= SAME_RATIO * scale) & (above | below)
    there = scale.isfinite() & (scale > 0)
    told = torch.stack((there, above, below, alike, symmetric)).tolist()
    if not told[0]:
        return NONE
    diagonal = not (told[1] or told[2])
    if diagonal and told[3]:
        return NONE
    return Structure(bool(told[4]), diagonal, not told[1], not told[2])


def mostly_zeros(a: Any) -> bool:
    """Whether few numbers of a matrix are not zero, and some are."""
    most = MOST_COUNTED_ON_DEVICE if a.device.type == "cuda" else MOST_LOOKED_AT
    if a.dim() != 2 or min(a.shape) < LEAST_SIDE or a.numel() > most:
        return False
    high, wide = (max(side // SAMPLED_SIDE, 1) for side in a.shape)
    sample = a[::high, ::wide]
    if int((sample != 0).sum()) > 2 * FEW_RATIO * sample.numel():  # of a diagonal 1 of 64 at most
        return False
    there = int((a != 0).sum())
    return 0 < there <= FEW_RATIO * int(a.numel())


def is_positive_definite(torch: Any, a: Any) -> bool:
    """Of a symmetric matrix: whether it has Cholesky factors."""
    return not bool(torch.linalg.cholesky_ex(a)[1].any())


def is_orthogonal(torch: Any, a: Any) -> bool:
    """Whether all matrices of a batch turn and mirror, and do nothing else."""
    if a.dim() < 3 or a.shape[-1] != a.shape[-2] or a.numel() > MOST_LOOKED_AT:
        return False
    one = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    if bool((a == one).all()):
        return False
    return bool(((a @ a.mT - one).abs().amax() <= ORTHOGONAL_WITHIN).item())
