"""Operations that XLA compiles badly for a CPU, and that can be written otherwise.

A convolution of each channel by itself is a loop over all of them without vectors, and its gradient
one over all pairs of channels. A long convolution of single channels is done point by point. Many
small systems are each a call of LAPACK.
"""

from collections.abc import Iterator

from pinchpoint.importers.xplane.hlo import Instruction, Program
from pinchpoint.importers.xplane.other_way import OtherWay
from pinchpoint.importers.xplane.shapes import Shape
from pinchpoint.regex import regex

FEWEST_CHANNELS = 8  # of fewer the loop over them is short
MOST_POINTS = 32  # of a window: one shifted product each
FEWEST_POINTS = 256  # of a long convolution, from where transforms were seen to be faster
LARGEST_SYSTEM = 6  # unknowns: larger ones were not measured
FEWEST_SYSTEMS = 256  # a call of LAPACK for each of fewer is over in 0.1 ms
_LU = regex(r"lapack_[sd]getrf")
_OF_LU = regex(r"lapack_[sd](getrf|trsm)")
_SOLVES = regex(r"jit\(_?lu_solve\)|/lu(_pivots_to_permutation)?$|/triangular_solve$")


def slow_on_cpu(program: Program) -> dict[str, OtherWay]:
    """By name of what is launched: depthwise, long or systems."""
    return dict((*_convolutions(program), *_systems(program)))


def _convolutions(program: Program) -> Iterator[tuple[str, OtherWay]]:
    found = [one for one in program.by_id.values() if one.opcode == "convolution"]
    channels: dict[tuple[int, ...], str | None] = {}  # sizes of its gradient's products: its line
    for one in found:
        kernel = program.operands(one)[1:2]
        groups = one.feature_groups
        if not kernel or one.kernel_features is None:
            continue
        points = kernel[0].shape.elements // max(groups, 1)
        if groups >= FEWEST_CHANNELS and 1 < points <= MOST_POINTS:
            if kernel[0].shape.elements == groups * points:
                place = program.place_of(one)
                yield one.name, OtherWay("depthwise", 0.0, 0, place)
                channels[_sizes(groups, groups, kernel[0].shape.dimensions)] = place
        elif groups == 1 and points >= FEWEST_POINTS and _is_single(kernel[0]):
            yield one.name, OtherWay("long", 0.0, one.shape.bytes, program.place_of(one))
    for one in found:
        place = channels.get(tuple(sorted(size for size in one.shape.dimensions if size > 1)))
        if place is not None and one.feature_groups == 1:
            yield one.name, OtherWay("depthwise", 0.0, 0, place)


def _sizes(first: int, second: int, kernel: tuple[int, ...]) -> tuple[int, ...]:
    """Of all pairs of channels, in the window of a kernel whose input has one channel."""
    points = list(kernel)
    points.remove(first)
    return tuple(sorted(size for size in (first, second, *points) if size > 1))


def _is_single(kernel: Instruction) -> bool:
    """Whether it takes one channel to one, along one dimension."""
    return max(kernel.shape.dimensions, default=0) == kernel.shape.elements


def _systems(program: Program) -> Iterator[tuple[str, OtherWay]]:
    small = [
        one
        for one in program.by_id.values()
        if _LU.match(one.target) and _is_small(one.shape.parts[:1])
    ]
    if not small:
        return
    at = program.place_of(small[0])
    fused = {n for one in program.by_id.values() if one.opcode == "fusion" for n in one.called}
    for number, inside in program.computations.items():
        for one in inside if number not in fused else ():
            solves = _SOLVES.search(one.scope) is not None or _OF_LU.match(one.target) is not None
            if solves and program.place_of(one) == at:
                yield one.name, OtherWay("systems", 0.0, 0, at)


def _is_small(parts: list[Shape]) -> bool:
    sizes = parts[0].dimensions if parts else ()
    if len(sizes) < 3 or sizes[-1] != sizes[-2]:
        return False
    systems = parts[0].elements // max(sizes[-1] ** 2, 1)
    return sizes[-1] <= LARGEST_SYSTEM and systems >= FEWEST_SYSTEMS
