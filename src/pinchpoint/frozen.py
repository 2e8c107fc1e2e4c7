"""Dataclasses, nearly all of them frozen, whose methods are made when they are needed.

``dataclasses`` writes and compiles six methods for each class as it is declared, about a third of
the time in which a command starts: it imports some 300 such classes, and makes many of them never.
``dataclass`` here is declared, checked and used as theirs is (``replace``, ``fields``, ``asdict``,
pickling, patterns), if ``__init__`` takes all fields in order and all of them count: what a field
asks beyond a default is refused (TypeError, when the first instance is made).
"""

import dataclasses
from _thread import RLock
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, **options: bool) -> Any:
        """Declare a class, see the module; with any other option it is one of ``dataclasses``."""
        if options.keys() - {"frozen", "eq"}:
            return dataclasses.dataclass(cls, **options)
        frozen, eq = options.get("frozen", False), options.get("eq", True)
        return partial(_declared, frozen=frozen, eq=eq) if cls is None else _declared(cls)


_FIELDS = "__dataclass_fields__"
_NAMES = "__match_args__"  # for patterns: an unpickled instance was never made by ``__init__``
_put = object.__setattr__
_ONE_AT_A_TIME = RLock()  # a class that another thread is about to declare has half its fields


def _declared(cls: type, *, frozen: bool = False, eq: bool = True) -> type:
    own: dict[str, Any] = {
        _FIELDS: _Undeclared(cls),
        _NAMES: _Undeclared(cls, _NAMES),
        "__init__": _first_init(cls),
    }
    if frozen:
        own |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    if "__repr__" not in cls.__dict__:
        own["__repr__"] = _repr
    if eq and "__eq__" not in cls.__dict__:
        own["__eq__"] = _equal
    if eq and cls.__dict__.get("__hash__") is None:
        own["__hash__"] = _hash if frozen else None
    for name, value in own.items():
        setattr(cls, name, value)
    return cls


class _Undeclared:
    """In place of what ``dataclasses`` knows of a class until somebody asks for it."""

    def __init__(self, cls: type, what: str = _FIELDS) -> None:
        self._cls, self._what = cls, what

    def __get__(self, instance: object, owner: type) -> Any:
        cls = self._cls
        with _ONE_AT_A_TIME:
            if cls.__dict__[self._what] is self:
                delattr(cls, _NAMES)
                if cls.__doc__ is None:  # else the signature takes its place, which takes long
                    cls.__doc__ = cls.__name__
                dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
                _refuse_options(cls)
        return cls.__dict__[self._what]


def _refuse_options(cls: Any) -> None:
    for field in cls.__dict__[_FIELDS].values():
        plain = field.init and field.repr and field.compare and field.hash is None
        if not plain or field.kw_only:
            raise TypeError(f"{cls.__qualname__}.{field.name}: only a default is known here")


# Instances after which ``__init__`` is compiled: that takes 0.2 ms, as setting the fields of so
# many one by one does. Of ten classes that a diagnosis makes instances of, nine have fewer.
_FEW = 32


def _first_init(cls: type) -> Callable[..., None]:
    """``__init__`` of the first few instances, and of whatever it does not understand."""
    left, fields = _FEW, None

    def first(self: Any, *values: Any, **named: Any) -> None:
        nonlocal left, fields
        fields = fields or _plain_fields(cls) or _declared_fields(cls)
        left -= 1
        if left >= 0 and _fill(self, fields, values, named):
            return
        made = _init_of(cls)
        setattr(cls, "__init__", made)  # noqa: B010 - type checkers refuse the other way
        made(self, *values, **named)

    return first


# Names in order; defaults; what makes a default for each instance.
_Fields = tuple[tuple[str, ...], dict[str, Any], dict[str, Callable[[], Any]]]


def _plain_fields(cls: type) -> _Fields | None:
    """What the class itself says, if it says no more than names, types and values."""
    own = cls.__dict__.get("__annotations__")  # noqa: RUF063 - evaluates nothing
    if own is None or cls.__mro__[1:] != (object,) or any(map(_is_no_field, own.values())):
        return None
    defaults = {name: cls.__dict__[name] for name in own if name in cls.__dict__}
    for value in defaults.values():
        if isinstance(value, dataclasses.Field) or type(value).__hash__ is None:
            return None
    return tuple(own), defaults, {}


def _is_no_field(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return "Var" in annotation or "KW_ONLY" in annotation
    origin = getattr(annotation, "__origin__", annotation)
    return origin in (ClassVar, dataclasses.KW_ONLY) or isinstance(origin, dataclasses.InitVar)


def _declared_fields(cls: type) -> _Fields:
    declared, none = dataclasses.fields(cls), dataclasses.MISSING
    return (
        tuple(field.name for field in declared),
        {f.name: f.default for f in declared if f.default is not none},
        {f.name: f.default_factory for f in declared if f.default_factory is not none},
    )


def _fill(self: Any, fields: _Fields, values: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Whether the arguments fit; if they do, they are set."""
    names, defaults, makers = fields
    given = dict(zip(names, values, strict=False))
    if len(values) > len(names) or not given.keys().isdisjoint(named):
        return False
    given |= named
    for name in names:
        if name not in given:
            if name in makers:
                given[name] = makers[name]()
            elif name in defaults:
                given[name] = defaults[name]
    if len(given) != len(names) or not given.keys() >= set(names):
        return False
    for name in names:
        _put(self, name, given[name])
    if hasattr(self, "__post_init__"):
        self.__post_init__()
    return True


def _init_of(cls: Any) -> Callable[..., None]:
    """``__init__`` of a class, as ``dataclasses`` writes it for frozen ones; others take it too."""
    known: dict[str, Any] = {"_put": _put, "_absent": dataclasses.MISSING}
    parameters, lines = ["self"], []
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        if field.default_factory is not dataclasses.MISSING:
            known[f"_made_{name}"] = field.default_factory
            parameters.append(f"{name}=_absent")
            value = f"_made_{name}() if {name} is _absent else {name}"
        elif field.default is not dataclasses.MISSING:
            known[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        lines.append(f' _put(self, "{name}", {value})')
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    text = f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or [" pass"])
    exec(text, known)
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, field.name) for field in dataclasses.fields(self))


def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self))
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _equal(self: object, other: object) -> bool:
    return _values(self) == _values(other) if type(self) is type(other) else NotImplemented


def _hash(self: object) -> int:
    return hash(_values(self))


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
