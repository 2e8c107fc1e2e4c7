"""One operator call as the trace records it, and what it must cost."""

from collections.abc import Callable
from functools import cached_property, wraps
from typing import TypeVar

from pinchpoint.analysis.host.input_arguments import Shape, elements
from pinchpoint.frozen import dataclass
from pinchpoint.hardware.dtypes import bytes_of


@dataclass(frozen=True)
class OperatorCall:
    """The inputs of one call; equal calls cost the same.

    ``shapes`` has one entry an input: a shape, a tuple of shapes for a list of tensors, None for
    no tensor. ``values`` has the scalars as text, empty where there is none or it was not recorded.
    """

    name: str
    shapes: tuple[Shape | tuple[Shape, ...] | None, ...]
    dtypes: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def shape(self, i: int) -> Shape | None:
        """The shape of input ``i`` if it is a tensor with at least one dimension."""
        return self._shapes[i] if i < len(self._shapes) else None

    @cached_property
    def _shapes(self) -> tuple[Shape | None, ...]:
        return tuple(
            None if not entry or isinstance(entry[0], tuple) else entry for entry in self.shapes
        )

    def shape_list(self, i: int) -> tuple[Shape, ...] | None:
        """The shapes in a list of tensors; None if they were not recorded."""
        if i >= len(self.shapes):
            return None
        entry = self.shapes[i]
        if not entry or not isinstance(entry[0], tuple):
            return None
        return entry

    def is_tensor(self, i: int) -> bool:
        """Whether input ``i`` is a tensor; one without dimensions looks like a scalar by shape."""
        return self._are_tensors[i] if i < len(self._are_tensors) else False

    @cached_property
    def _are_tensors(self) -> tuple[bool, ...]:
        return tuple(
            self.shape(i) is not None or (bytes_of(self.dtype(i)) is not None and not self.value(i))
            for i in range(max(len(self.shapes), len(self.dtypes)))
        )

    def dtype(self, i: int) -> str:
        """The type of input ``i`` as recorded; empty where there is none."""
        return self.dtypes[i] if i < len(self.dtypes) else ""

    def tensors(self) -> list[int]:
        """Inputs that are tensors with at least one dimension."""
        return [i for i, shape in enumerate(self._shapes) if shape is not None]

    def size(self, i: int) -> int:
        """Elements of input ``i``; 1 for a tensor without dimensions."""
        return self._sizes[i] if i < len(self._sizes) else 1

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(1 if shape is None else elements(shape) for shape in self._shapes)

    def bytes(self, i: int) -> int:
        """Bytes of input ``i`` read once; 0 if it is no tensor."""
        return self.size(i) * self.element_bytes(i) if self.is_tensor(i) else 0

    def element_bytes(self, i: int) -> int:
        """Bytes an element; 4 where the type is not recorded."""
        return bytes_of(self.dtype(i)) or 4

    def has_unknown_type(self) -> bool:
        """Whether a tensor is of a type that is recorded, and whose size is not known."""
        return any(self.dtype(i) and bytes_of(self.dtype(i)) is None for i in self.tensors())

    def value(self, i: int) -> str:
        """The scalar at input ``i`` as text; empty where there is none."""
        return self.values[i] if i < len(self.values) else ""

    def flag(self, i: int) -> bool:
        """A truth value."""
        return self.value(i).strip().lower() in {"true", "1"}

    def integers(self, i: int) -> tuple[int, ...] | None:
        """A list of integers (``[1, 2]``), or one of them; None where there is none."""
        parts = self.value(i).strip().strip("[]").split(",")
        try:
            return tuple(int(p) for p in parts)
        except ValueError:
            return None

    def flags(self, i: int) -> tuple[bool, ...]:
        """A list of truth values."""
        return tuple(p.strip() == "True" for p in self.value(i).strip("[]").split(","))


Call = TypeVar("Call")
Answer = TypeVar("Answer")


def once_per_call(question: Callable[[Call], Answer]) -> Callable[[Call], Answer]:
    """Remember the answer of a pure function of a call with the call."""
    name = f"_{question.__name__}"

    @wraps(question)
    def ask(call: Call) -> Answer:
        remembered = vars(call)
        if name not in remembered:
            remembered[name] = question(call)
        answer: Answer = remembered[name]
        return answer

    return ask


@dataclass(frozen=True)
class Cost:
    """What a call must do at least: multiply and add count apart, every byte moves once.

    ``flops`` is None where the work cannot be known (a fused kernel of a compiler). For causal
    attention it counts the half that is needed; ``whole_flops`` is what formulas that ignore the
    mask count. ``matrix``: the work can run on matrix units. ``in_turn``: kernels that depend on
    each other at least (the steps of a recurrent layer).
    """

    flops: int | None
    bytes: int | None
    matrix: bool = False
    whole_flops: int | None = None
    in_turn: int = 1

    @property
    def unmasked_flops(self) -> int | None:
        """FLOPs when masks are ignored."""
        return self.flops if self.whole_flops is None else self.whole_flops
