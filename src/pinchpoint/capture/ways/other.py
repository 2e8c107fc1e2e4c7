"""Another way to what one call of an operator gives, and whether it gives the same."""

from collections.abc import Callable
from typing import Any

from pinchpoint.frozen import dataclass

# Of the largest number of a result. Another order of sums differs by less; matrix units of 19 bits
# (TF32) and numbers of 16 bits by more.
SAME_RATIO, SAME_IN_16_BITS_RATIO = 5e-3, 3e-2


@dataclass(frozen=True)
class Other:
    """One way; ``key`` names it in a recording (``diagnosis/evidence/tried_ways.json``)."""

    key: str
    run: Callable[[], Any]
    gives_the_same: Callable[[Any, Any], bool]  # of what the operator gives and what ``run`` does


def same(torch: Any, one: Any, other: Any) -> bool:
    """Whether two tensors hold the same, but for rounding; read by the host."""
    if one.shape != other.shape:
        return False
    if not (one.is_floating_point() or one.is_complex()):
        return bool(torch.equal(one, other.to(one.dtype)))
    few = one.dtype in (torch.float16, torch.bfloat16)
    wide = torch.float32 if few else one.dtype
    a, b = one.to(wide), other.to(wide)
    apart, scale = (a - b).abs().amax(), a.abs().amax()
    limit = SAME_IN_16_BITS_RATIO if few else SAME_RATIO
    return bool((apart <= limit * scale) & scale.isfinite())
