"""Fourier transforms, over the dimensions that ATen's ``_fft_r2c`` and its like name.

A complex transform of N points counts 5 N log2 N FLOPs, a real one half: the measure of FFT
libraries (benchFFT). Each dimension is a pass over memory, and one too long for the shared memory
of a block is two (cuFFT documentation). A real transform of such a length is a complex one of half
the points and one pass more, which puts its halves together: recordings have it as
``preprocess_kernel`` and ``postprocess_kernel``.
"""

from itertools import count
from math import log2, prod

from pinchpoint.analysis.costs.call import Cost, OperatorCall

NAMES = ("aten::_fft_r2c", "aten::_fft_c2r", "aten::_fft_c2c")
LONGEST_IN_A_PASS = 2**14  # complex points of 8 bytes: 128 KiB of the 164 to 228 that a block has
COMPLEX_FLOPS, REAL_FLOPS = 5.0, 2.5  # for each point and doubling of the length


def fourier(call: OperatorCall) -> Cost | None:
    """Lengths are known where the scalar arguments were recorded."""
    shape, dims, lengths = call.shape(0), call.integers(1), transform_lengths(call)
    if shape is None or dims is None or lengths is None:
        return None
    real = not call.name.endswith("c2c")
    others = prod(n for at, n in enumerate(shape) if at not in {dim % len(shape) for dim in dims})
    points = others * prod(lengths)
    passes = sum(2 if n > LONGEST_IN_A_PASS else 1 for n in lengths)
    passes += int(real and lengths[-1] > LONGEST_IN_A_PASS)
    width = call.element_bytes(0) // (2 if call.name.endswith(("c2r", "c2c")) else 1)
    each_way = points * width * (1 if real else 2)  # half of a real one's result is its mirror
    work = (REAL_FLOPS if real else COMPLEX_FLOPS) * points * log2(max(prod(lengths), 2))
    return Cost(round(work), 2 * each_way * passes)


def transform_lengths(call: OperatorCall) -> list[int] | None:
    """Points along each dimension that is transformed; None where the recording does not say."""
    shape, dims = call.shape(0), call.integers(1)
    if shape is None or not dims or any(not -len(shape) <= dim < len(shape) for dim in dims):
        return None
    lengths = [shape[dim] for dim in dims]
    if call.name.endswith("c2r"):
        result = call.integers(3)
        if result is None:
            return None
        lengths[-1] = result[0]
    return lengths


def largest_prime_factor(number: int) -> int:
    """Of a number from 1 on; 1 of 1."""
    largest, factor = 1, 2
    while factor * factor <= number:
        while number % factor == 0:
            largest, number = factor, number // factor
        factor += 1
    return max(largest, number)


def next_fast_length(number: int) -> int:
    """The first length from this one on that has no prime factor but 2, 3 and 5."""
    return next(n for n in count(number) if largest_prime_factor(n) <= LARGEST_FAST_FACTOR)


LARGEST_FAST_FACTOR = 5  # all FFT libraries have passes of their own for 2, 3 and 5
