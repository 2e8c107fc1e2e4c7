"""What a way is, and what conditions ask of a call."""

from collections.abc import Callable
from math import prod

from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace.run_samples import Called, Given

MANY = 1000  # things that a call goes through: with fewer, calling it is most of what it takes
FEW_RATIO = 1 / 16  # of all, that are wanted: of more, the quicker way wins little
NUMBERS = ("int", "float", "bool")


@dataclass(frozen=True)
class Said:
    """What a call does with what it is given, and what is left of its time the other way."""

    does: str  # goes on after the call: "permutes all of 400,000 numbers to draw 256"
    left: tuple[float, float]  # least and most, as shares


@dataclass(frozen=True)
class Way:
    """One slow way."""

    names: str  # an expression for the full name of what is called
    asks: Callable[[Called], Said | None]
    instead: str
    hint: str | None = None
    always: bool = True  # else whether it can be done that way depends on what does not show

    def said(self, call: Called) -> Said | None:
        """None where this call is not meant."""
        return self.asks(call) if regex(self.names).search(call.called) else None


def numbers_in(given: Given | None) -> int:
    """Of an array, or of a list with what is in each of its parts; 0 where that is not known."""
    if given is None:
        return 0
    if given.kind in ("int", "float", "bool", "None", "unknown"):
        return 0
    inside = prod(given.of_shape) if given.of in ("list", "tuple", "array", "tensor") else 1
    return prod(given.shape) * inside if given.shape else 0


def count_of(given: Given | None) -> int:
    """Of things that a whole number or a shape asks for; 0 where neither is known."""
    if given is None:
        return 0
    if given.kind == "int" and given.value is not None:
        return int(given.value)
    return prod(given.of_shape) if given.kind in ("tuple", "list") and given.of == "int" else 0


def is_false(given: Given | None, *, absent: bool = False) -> bool:
    """Whether an option is off; ``absent``: what it is where it is not given."""
    return absent if given is None else given.kind == "bool" and given.value == 0


def is_array(given: Given | None, *kinds: str) -> bool:
    """Of these kinds of numbers, by how their names begin; any where none are asked for."""
    found = given is not None and given.kind == "array"
    return found and (not kinds or (given is not None and given.dtype.startswith(kinds)))


def taken(call: Called) -> int:
    """How many of its answers are taken by the index behind it; 0 where that is not known."""
    some = count_of(call.one("[:]", "[-:]"))
    at = call.one("[]")
    return some or (1 if at is not None and at.kind == "int" else 0)


def stays(call: Called, given: Given | None) -> bool:
    """Whether it held the same at each of at least two later calls."""
    return given is not None and call.compared >= 2 and given.alike == call.compared
