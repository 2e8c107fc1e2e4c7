"""Shapes of compiled programs (``ShapeProto``): what arrays hold and how much they take."""

from math import prod

from pinchpoint.importers.xplane.fields import integer, integers, messages, told_by

_ELEMENT_TYPE, _DIMENSIONS, _TUPLE = 2, 3, 4  # of ShapeProto

# Bits of PrimitiveType; tuples, tokens and opaque values have none.
_BITS = dict.fromkeys((1, 2, 6, 19, 20, 23, 24, 25, 28, 29, 33), 8)
_BITS |= {3: 16, 7: 16, 10: 16, 16: 16, 4: 32, 8: 32, 11: 32, 5: 64, 9: 64, 12: 64, 15: 64}
_BITS |= {18: 128, 21: 4, 22: 4, 26: 2, 27: 2, 30: 1, 31: 1, 32: 4}
# Bits of the types that hold real numbers; of 8 bits are five.
FLOATS = dict.fromkeys((19, 20, 23, 24, 25, 28, 29), 8) | {10: 16, 16: 16, 11: 32, 12: 64}
DOUBLE = 12  # the type of float64


class Shape:
    """An array, or the arrays of a tuple."""

    def __init__(self, message: bytes) -> None:
        told = told_by(message)
        self.type = integer(told, _ELEMENT_TYPE)
        self.dimensions = tuple(integers(told, _DIMENSIONS))
        self.parts = [Shape(part) for part in messages(told, _TUPLE)]

    @property
    def elements(self) -> int:
        """Of an array; those of a tuple are in its parts."""
        return prod(self.dimensions)

    @property
    def bytes(self) -> int:
        """What it takes in memory, without what pads it."""
        own = self.elements * _BITS.get(self.type, 0) // 8
        return own + sum(part.bytes for part in self.parts)
