"""How much longer Fourier transforms of a slow length take than those of the next fast one.

    python benchmarks/fft_lengths.py [--lengths 40]

On one thread of this machine, with the library that torch was built with: real and complex
transforms of many rows, of lengths from 250 to 65,537, each the fastest of several, in turns with
the next length of factors 2, 3 and 5. The table has them by the largest prime factor, so many
lengths in each row, odd and even; what ``cpu-fft-length`` says rests on the last two rows.
"""

import argparse
import random
import time
from collections.abc import Callable

import torch

from pinchpoint.analysis.costs.fourier import largest_prime_factor, next_fast_length

SHORTEST, LONGEST = 250, 65_537
POINTS = 1 << 19  # of all rows together: longer than what timing it takes
TURNS = 7
KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "real": torch.fft.rfft,
    "complex": torch.fft.fft,
}
GROUPS = ((7, 11), (13, 31), (37, 61), (67, 97), (101, LONGEST))


def main() -> None:
    """Time, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", type=int, default=40)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print("| largest prime factor | lengths | transforms | times the next fast length |")
    print("|---|---|---|---|")
    for kind, transform in KINDS.items():
        for least, most in GROUPS:
            lengths = _lengths(least, most, asked.lengths)
            mine = sorted(_times(transform, n) for n in lengths)
            said = f"{mine[0]:.1f} to {mine[-1]:.1f}, median {mine[len(mine) // 2]:.1f}"
            print(f"| {least} to {most:,} | {len(mine)} | {kind} | {said} |", flush=True)


def _lengths(least: int, most: int, count: int) -> list[int]:
    """So many lengths with a largest prime factor in these limits, as often short as long."""
    drawn, found = random.Random(1), set[int]()
    while len(found) < count:
        length = round(SHORTEST * (LONGEST / SHORTEST) ** drawn.random())
        if least <= largest_prime_factor(length) <= most:
            found.add(length)
    return sorted(found)


def _times(transform: Callable[[torch.Tensor], torch.Tensor], length: int) -> float:
    fast = next_fast_length(length)
    rows = max(POINTS // length, 1)
    dtype = torch.complex64 if transform is torch.fft.fft else torch.float32
    inputs = [torch.randn(rows, n, dtype=dtype) for n in (length, fast)]
    took = [min(_seconds(transform, x) for _ in range(TURNS)) for x in inputs]
    return took[0] / took[1]


def _seconds(transform: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> float:
    began = time.perf_counter()
    transform(x)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
