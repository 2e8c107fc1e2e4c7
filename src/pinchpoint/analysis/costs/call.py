"""One operator call as the trace records it, and what it must cost."""

from dataclasses import dataclass

from pinchpoint.analysis.shapes import Shape, elements

_BYTES = {
    "double": 8, "float": 4, "c10::half": 2, "c10::bfloat16": 2, "long int": 8, "long": 8,
    "int": 4, "short": 2, "short int": 2, "signed char": 1, "unsigned char": 1, "char": 1,
    "bool": 1, "c10::complex<float>": 8, "c10::complex<double>": 16, "float64": 8, "float32": 4,
    "float16": 2, "bfloat16": 2, "half": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1,
}  # fmt: skip


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
        if i >= len(self.shapes):
            return None
        entry = self.shapes[i]
        if not entry or isinstance(entry[0], tuple):
            return None
        return entry

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
        if self.shape(i) is not None:
            return True
        dtype = self.dtypes[i] if i < len(self.dtypes) else ""
        return bool(dtype) and dtype.lower() in _BYTES and not self.value(i)

    def size(self, i: int) -> int:
        """Elements of input ``i``; 1 for a tensor without dimensions."""
        shape = self.shape(i)
        return 1 if shape is None else elements(shape)

    def bytes(self, i: int) -> int:
        """Bytes of input ``i`` read once; 0 if it is no tensor."""
        return self.size(i) * self.element_bytes(i) if self.is_tensor(i) else 0

    def element_bytes(self, i: int) -> int:
        """Bytes an element; 4 where the type is not recorded."""
        dtype = self.dtypes[i] if i < len(self.dtypes) else ""
        return bytes_of_dtype(dtype) or 4

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


@dataclass(frozen=True)
class Cost:
    """What a call must do at least: multiply and add count apart, every byte moves once.

    ``flops`` is None where the work cannot be known (a fused kernel of a compiler). For causal
    attention it counts the half that is needed; ``whole_flops`` is what formulas that ignore the
    mask count. ``matrix``: the work can run on matrix units.
    """

    flops: int | None
    bytes: int | None
    matrix: bool = False
    whole_flops: int | None = None

    @property
    def unmasked_flops(self) -> int | None:
        """FLOPs when masks are ignored."""
        return self.flops if self.whole_flops is None else self.whole_flops


def bytes_of_dtype(dtype: str) -> int | None:
    """Bytes an element of a type as recorders spell it; None if unknown."""
    lower = dtype.lower().removeprefix("torch.")
    if lower in _BYTES:
        return _BYTES[lower]
    return 1 if "float8" in lower or "quint8" in lower or "qint8" in lower else None
