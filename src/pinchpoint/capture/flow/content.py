"""Sums over all bits of tensors, which tell values apart without keeping them."""

from typing import Any

PIECE = 1 << 20  # elements summed at once, which need 24 MiB for a moment
_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


def sum_of_bits(torch: Any, tensor: Any) -> Any:
    """A whole number that two tensors of other values hardly share; it wraps around."""
    x = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if x.dtype is torch.bool or x.is_complex():
        x = x.to(torch.uint8) if x.dtype is torch.bool else torch.view_as_real(x).reshape(-1)
    bits = x.view(getattr(torch, _BITS[x.element_size()]))
    total = torch.zeros((), dtype=torch.int64, device=x.device)
    for number, piece in enumerate(bits.split(PIECE)):
        weights = torch.arange(1, len(piece) + 1, device=x.device) * 0x9E3779B1 | 1
        total += (piece.to(torch.int64) * weights).sum() * (2 * number + 1)
    return total
