"""One operation as the dispatcher runs it: what it reads, writes and makes, without the tensors.

Tensors are told by their storage, a number that :class:`~pinchpoint.capture.flow.storages.Storages`
gives, and by how they lie in it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pinchpoint.frozen import dataclass

Tensor = tuple[int, tuple[Any, ...]]  # number of the storage; type, size, stride, offset
Shapes = tuple[tuple[int, ...], ...]

_PLAIN = (int, float, complex, str, bool, type(None))
# Of the arguments of these nothing but size and type is asked.
_ASK_SIZES_ONLY = ("_like", "::new_", "::sym_")
# What overwrites all of a tensor whatever it held.
_OVERWRITES = ("copy_", "fill_", "zero_", "uniform_", "normal_", "_foreach_zero_")
OVERWRITES = frozenset(f"aten::{name}" for name in _OVERWRITES)
# What other processes or streams have a part in.
_SHARED = ("c10d", "fsdp", "symm_mem", "dist")


@dataclass(frozen=True)
class Kind:
    """What the schema of an operator says of all its calls."""

    name: str  # as the profiler spells it
    writes: frozenset[str]  # arguments that it changes
    arguments: tuple[str, ...]
    random: bool
    read_by_host: bool  # what it gives decides what the program does next
    opaque: bool  # what it does is not known
    sizes_only: bool
    pointwise: bool = False  # element by element


@dataclass(frozen=True)
class Operation:
    """One call of an operator."""

    kind: Kind
    plain: Any  # arguments that are no tensors, and where the tensors stood among them
    reads: tuple[Tensor, ...]
    writes: tuple[tuple[int, bool], ...]  # storages; whether all of it is overwritten
    makes: tuple[int, ...]  # storages that were not there before
    view: bool  # it gives nothing but tensors in storages that it was given
    random: bool
    root: bool  # somebody reads what it gives, whatever follows
    backward: bool  # inside of a backward pass
    shapes: Shapes  # of its tensors with dimensions, in the order of its arguments
    stack: int  # number of the user's frames around it
    checkpoint: bool  # a checkpoint runs it
    bytes: int  # of what it makes
    shape: tuple[int, ...] = ()  # of the first tensor that it gives
    # As a parameter's gradient is stored: where that lies, and where the parameter does.
    gradient: tuple[int, int] | None = None


ESCAPE = Kind(
    "escape", frozenset(), (), random=False, read_by_host=True, opaque=True, sizes_only=False
)


def _copy(name: str) -> Kind:
    return Kind(
        name, frozenset(), (), random=False, read_by_host=False, opaque=False, sizes_only=False
    )


# What the dispatcher is told of in inference mode, and elsewhere what it becomes where it copies:
# a recording has that everywhere.
COMPOSED_COPIES = {"aten::to": _copy("aten::_to_copy"), "aten::contiguous": _copy("aten::clone")}


def escape(number: int) -> Operation:
    """The memory of a storage is handed to something that is not seen, which may write to it."""
    writes = ((number, False),)
    return Operation(ESCAPE, (), (), writes, (), False, True, True, False, (), 0, False, 0)


_STEPS = Kind(
    "escape::step",
    frozenset(),
    (),
    random=False,
    read_by_host=False,
    opaque=False,
    sizes_only=False,
)


def read_by_optimizer(gradients: Iterable[Tensor]) -> Operation:
    """An optimizer is about to step with these gradients: it may read them unseen."""
    return Operation(
        _STEPS, (), tuple(gradients), (), (), False, False, True, False, (), 0, False, 0
    )


def kind_of(func: Any) -> Kind:
    """The kind of an overload of an operator; of what is no such thing an opaque one."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        name = str(getattr(func, "_name", func))
        return Kind(
            name, frozenset(), (), random=True, read_by_host=True, opaque=True, sizes_only=False
        )
    name, tags = schema.name, {str(tag).rpartition(".")[2] for tag in func.tags}
    names = tuple(one.name for one in schema.arguments)
    writes = {one.name for one in schema.arguments if one.alias_info and one.alias_info.is_write}
    if "batch_norm" in name and "backward" not in name:  # some do not say it
        writes |= {"running_mean", "running_var"}.intersection(names)
    return Kind(
        name,
        frozenset(writes),
        names,
        random="nondeterministic_seeded" in tags,
        read_by_host=bool(tags & {"data_dependent_output", "dynamic_output_shape"}),
        opaque=name.startswith(_SHARED) or "::set_" in name or "resize" in name,
        sizes_only=any(part in name for part in _ASK_SIZES_ONLY),
        pointwise="pointwise" in tags,
    )


def changed(torch: Any, kind: Kind, args: Any, kwargs: Any) -> list[Any]:
    """Tensors that a call changes."""
    return [
        one
        for name, value in named_arguments(kind, args, kwargs)
        if name in kind.writes
        for one in (value if isinstance(value, list | tuple) else (value,))
        if isinstance(one, torch.Tensor)
    ]


def named_arguments(kind: Kind, args: Any, kwargs: Any) -> Iterator[tuple[str, Any]]:
    """The arguments of a call, with their names."""
    yield from zip(kind.arguments, args, strict=False)
    yield from kwargs.items()


def is_random(kind: Kind, args: Any, kwargs: Any) -> bool:
    """Whether this call may give something else next time: what drops nothing may not."""
    if not kind.random:
        return False
    for name, value in named_arguments(kind, args, kwargs):
        if name.startswith("dropout") and value == 0:
            return False
    if "scaled_dot_product" in kind.name or "_rnn" in kind.name:
        given = {name for name, _ in named_arguments(kind, args, kwargs)}
        return any(name.startswith("dropout") for name in given)  # what is left out is 0
    return True


def laid_flat(value: Any, tensor: Any, found: list[Any]) -> Any:
    """Arguments with marks where tensors stood, which are added to ``found``; raises
    ``LookupError`` for what cannot be looked into."""
    if isinstance(value, tensor):
        found.append(value)
        return "tensor"
    if isinstance(value, list | tuple):
        return tuple(laid_flat(one, tensor, found) for one in value)
    if isinstance(value, _PLAIN) or type(value).__module__ == "torch":  # a type, device or layout
        return repr(value)
    raise LookupError(type(value).__name__)


def shapes_of(tensors: list[Any]) -> Shapes:
    """As the profiler has them: without tensors that have no dimensions."""
    return tuple(shape for t in tensors if (shape := tuple(t.shape)))


def lies(tensor: Any) -> tuple[Any, ...]:
    """How a tensor lies in its storage."""
    return (
        str(tensor.dtype),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.storage_offset(),
        tensor.is_conj() or tensor.is_neg(),
    )
