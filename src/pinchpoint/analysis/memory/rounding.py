"""The allocator's rules for the size of a block: ``round_size`` and ``should_split``.

Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.11, checked against recordings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MIN_BLOCK_BYTES = 512  # kMinBlockSize
LARGE_REMAINDER_BYTES = 1 << 20  # kSmallSize: a smaller rest of a large block stays with it


@dataclass(frozen=True)
class Rules:
    """The allocator's settings that decide sizes."""

    expandable: bool = False
    max_split_bytes: int | None = None
    power2_divisions: tuple[tuple[int, int], ...] = ()  # (from MiB, divisions), ascending

    def rounded(self, requested: int) -> int:
        """Size of the block that serves a request, before any remainder."""
        if requested < MIN_BLOCK_BYTES:
            return MIN_BLOCK_BYTES
        divisions = self._divisions(requested)
        if divisions > 1 and requested > MIN_BLOCK_BYTES * divisions:
            return _next_division(requested, divisions)
        return -(-requested // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES

    def splits(self, rounded: int, rest: int, *, small: bool) -> bool:
        """Whether what a free block has left over becomes a block of its own."""
        if small or self.expandable:
            return rest >= MIN_BLOCK_BYTES
        fits = self.max_split_bytes is None or rounded < self.max_split_bytes
        return fits and rest > LARGE_REMAINDER_BYTES

    def _divisions(self, requested: int) -> int:
        found = 0
        for from_mib, divisions in self.power2_divisions:
            if requested >= from_mib << 20 or not found:
                found = divisions
        return found


def rules(settings: Mapping[str, Any]) -> Rules:
    """The rules from a snapshot's ``allocator_settings``; defaults for what it does not say."""
    split = settings.get("max_split_size")
    divisions = settings.get("roundup_power2_divisions")
    pairs = sorted(
        (int(key), int(value))
        for key, value in (divisions.items() if isinstance(divisions, Mapping) else ())
        if str(key).isdigit() and isinstance(value, int)
    )
    return Rules(
        expandable=bool(settings.get("expandable_segments")),
        max_split_bytes=split if isinstance(split, int) and split > 0 else None,
        power2_divisions=tuple(pairs) if any(value > 1 for _, value in pairs) else (),
    )


def _next_division(size: int, divisions: int) -> int:
    floor = 1 << (size.bit_length() - 1)
    if floor == size:
        return size
    step = floor >> (divisions.bit_length() - 1)
    if step == 0:
        return floor << 1
    return -(-size // step) * step
