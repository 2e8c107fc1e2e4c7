"""What a call in the program's text is given, read from the variables of the frame that calls.

Names, attributes that lie in an object, numbers, and plain indices alone: no code of the program
runs. What would take more than that is unknown.
"""

import ast
import linecache
import math
import os
import textwrap
import types
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from pinchpoint.capture.samples.instructions import instructions

UNKNOWN: Any = object()  # what is not told by reading
_LONGEST_LINES = 12  # of one call: longer ones are made of more than names
_MOST_LINES = 200  # of a function: of a longer one nobody knows at a glance
_MOST_NODES = 200  # of its syntax tree
_ARRAY_FACTS = ("shape", "size", "ndim", "T")
_SAME_SIZE = ("astype", "copy", "clip", "round", "conj")  # methods of arrays
_OF_MODULES = ("_parameters", "_buffers", "_modules")  # where torch keeps a module's attributes


@dataclass(frozen=True)
class Sized:
    """An array that is computed in the text: its shape is known by those of what it is made of."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Written:
    """A call as it stands in the program, and what its text does with the answer."""

    node: ast.Call | ast.Subscript | ast.BinOp
    index: ast.expr | None = None  # of ``f(x)[index]``
    times: ast.expr | None = None  # of ``f(x) @ times``
    onto: ast.expr | None = None  # of ``onto = f(x)``
    in_parts: bool = False  # all that reads ``onto`` later in the function takes a part by an index

    @property
    def names(self) -> set[str]:
        """Variables that it reads."""
        trees = [one for one in (self.node, self.index, self.times) if one is not None]
        walked = (node for tree in trees for node in ast.walk(tree))
        return {node.id for node in walked if isinstance(node, ast.Name)}


def written_at(code: CodeType, at: int) -> Written | None:
    """The call, subscript or product that the instruction at an offset is; None where the text is
    not at hand, or is something else."""
    one = next((one for one in instructions(code) if one.offset == begin_of(code, at)), None)
    where = one.positions if one is not None else None
    if where is None or None in (where.lineno, where.col_offset, where.end_lineno):
        return None
    first, last = where.lineno or 0, where.end_lineno or 0
    if last - first >= _LONGEST_LINES:
        return None
    lines = [linecache.getline(code.co_filename, n).encode() for n in range(first, last + 1)]
    if not all(lines):
        return None
    after = lines[-1][where.end_col_offset or 0 :].decode(errors="replace")
    lines[-1] = lines[-1][: where.end_col_offset]
    before = lines[0][: where.col_offset].decode(errors="replace").strip()
    lines[0] = lines[0][where.col_offset or 0 :]
    node = _parsed(b"".join(lines).decode(errors="replace"))
    if not isinstance(node, ast.Call | ast.Subscript | ast.BinOp):
        return None
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
        return None
    onto = _parsed(before[:-1]) if before.endswith("=") and before[-2:-1].isspace() else None
    in_parts = isinstance(onto, ast.Name) and _in_parts(code, onto.id)
    return Written(node, *_after(after), onto, in_parts)


def _in_parts(code: CodeType, name: str) -> bool:
    """Whether a variable of a function is read, and each time by an index."""
    last = max((line for *_, line in code.co_lines() if line), default=0)
    lines = [linecache.getline(code.co_filename, n) for n in range(code.co_firstlineno, last + 1)]
    if len(lines) > _MOST_LINES:
        return False
    try:
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    walked = list(ast.walk(tree))
    read = [n for n in walked if isinstance(n, ast.Name) and n.id == name and _is_load(n)]
    taken = [n.value for n in walked if isinstance(n, ast.Subscript) and _is_load(n)]
    return bool(read) and all(any(one is value for value in taken) for one in read)


def _is_load(node: ast.Name | ast.Subscript) -> bool:
    return isinstance(node.ctx, ast.Load)


def begin_of(code: CodeType, at: int) -> int:
    """Of the instruction that an offset is in: a frame that has called Python code (3.11) is at the
    end of what belongs to its call."""
    return max((one.offset for one in instructions(code) if one.offset <= at), default=at)


def _parsed(text: str) -> ast.expr | None:
    try:
        node = ast.parse(f"({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return node if sum(1 for _ in ast.walk(node)) <= _MOST_NODES else None


def _after(text: str) -> tuple[ast.expr | None, ast.expr | None]:
    """The index that follows on the same line, and the factor behind ``@``."""
    text = text.strip()
    if text.startswith("["):
        # The shortest text that is whole: an index may hold brackets itself.
        ends = [n + 1 for n, letter in enumerate(text) if letter == "]"]
        for node in (_parsed(f"x{text[:end]}") for end in ends[:4]):
            if isinstance(node, ast.Subscript):
                return node.slice, None
    if text.startswith("@") and not text.startswith("@="):
        for end in range(len(text), 1, -1):
            node = _parsed(f"x {text[:end]}") if text[:end].strip() != "@" else None
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                return None, _first_factor(node)
    return None, None


def _first_factor(node: ast.BinOp) -> ast.expr:
    """Of ``x @ a @ b`` the one behind ``x``."""
    while isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.MatMult):
        node = node.left
    return node.right


def value_of(node: ast.AST | None, names: Mapping[str, Any]) -> Any:
    """What an expression is; ``UNKNOWN`` where reading does not tell it."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id, UNKNOWN)
    if isinstance(node, ast.Attribute):
        return attribute(value_of(node.value, names), node.attr)
    if isinstance(node, ast.Tuple | ast.List):
        inside = [value_of(one, names) for one in node.elts]
        return tuple(inside) if isinstance(node, ast.Tuple) else inside
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = value_of(node.operand, names)
        return -value if type(value) in (int, float) else _elementwise(value)
    if isinstance(node, ast.BinOp):
        return _computed(node.op, value_of(node.left, names), value_of(node.right, names))
    if isinstance(node, ast.Subscript):
        return _item(value_of(node.value, names), value_of(node.slice, names))
    if isinstance(node, ast.Slice):
        parts = [value_of(one, names) if one else None for one in (node.lower, node.upper)]
        return UNKNOWN if node.step or UNKNOWN in parts else slice(*parts)
    if isinstance(node, ast.JoinedStr):
        return _text(node, names)
    return _answer(node, names) if isinstance(node, ast.Call) else UNKNOWN


def _text(node: ast.JoinedStr, names: Mapping[str, Any]) -> Any:
    """``f"{root}/{name}.npy"`` of texts and whole numbers, without formats."""
    parts = []
    for one in node.values:
        plain = isinstance(one, ast.FormattedValue) and not one.format_spec and one.conversion < 0
        value = value_of(one.value, names) if isinstance(one, ast.FormattedValue) else None
        if isinstance(one, ast.Constant):
            value = one.value
        elif not plain or type(value) not in (str, int):
            return UNKNOWN
        parts.append(str(value))
    return "".join(parts)


def _answer(node: ast.Call, names: Mapping[str, Any]) -> Any:
    """Of ``len()``, and the size of what functions of arrays give that go number by number."""
    function, first = node.func, value_of(node.args[0], names) if node.args else UNKNOWN
    if isinstance(function, ast.Name) and function.id == "len":
        counted = type(first) in (list, tuple, dict, set, str, bytes) or _is_array(type(first))
        return len(first) if counted else UNKNOWN
    if not isinstance(function, ast.Attribute):
        return UNKNOWN
    of = value_of(function.value, names)
    if of is os.path and function.attr == "join":
        parts = [value_of(one, names) for one in node.args]
        return of.join(*parts) if all(type(one) is str for one in parts) else UNKNOWN
    if function.attr in _SAME_SIZE:
        return _elementwise(of)
    return (
        _elementwise(first) if type(attribute(of, function.attr)).__name__ == "ufunc" else UNKNOWN
    )


def _elementwise(*values: Any) -> Any:
    """Of operations on arrays, number by number: the largest shape of what is known of them."""
    shapes = [one.shape for one in values if isinstance(one, Sized) or _is_array(type(one))]
    return Sized(max(shapes, key=math.prod)) if shapes else UNKNOWN


def _is_array(kind: type) -> bool:
    return (kind.__module__, kind.__name__) == ("numpy", "ndarray")


def _computed(operation: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(operation, ast.Add | ast.Sub | ast.Mult | ast.Div | ast.Pow):
        shaped = _elementwise(left, right)
        if shaped is not UNKNOWN:
            return shaped
    if type(left).__module__ == "pathlib" and type(right) is str:
        return left / right if isinstance(operation, ast.Div) else UNKNOWN
    if type(left) is not int or type(right) is not int:
        return UNKNOWN
    if isinstance(operation, ast.Add):
        return left + right
    if isinstance(operation, ast.Sub):
        return left - right
    if isinstance(operation, ast.Mult):
        return left * right
    return left // right if isinstance(operation, ast.FloorDiv) and right else UNKNOWN


def _item(value: Any, key: Any) -> Any:
    if type(value) in (list, tuple) and type(key) is int and -len(value) <= key < len(value):
        return value[key]
    if _is_array(type(value)):
        parts = key if isinstance(key, tuple) else (key,)
        basic = all(one is None or type(one) in (int, slice, type(...)) for one in parts)
        return value[key] if basic else UNKNOWN
    if type(value) is dict and type(key) in (int, str):
        return value.get(key, UNKNOWN)
    return UNKNOWN


def attribute(value: Any, name: str) -> Any:
    """What lies in an object under this name, or in its class; nothing is computed for it."""
    if value is UNKNOWN:
        return UNKNOWN
    kind = type(value)
    if name in _ARRAY_FACTS and _is_array(kind):
        return getattr(value, name)
    inside = _attributes(value)
    if name in inside:
        return inside[name]
    for where in (inside.get(one) for one in _OF_MODULES):
        if type(where) is dict and name in where:
            return where[name]
    return UNKNOWN


def _attributes(value: Any) -> Mapping[str, Any]:
    """The dict of an object, asked for where no class can answer in its place."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return found if isinstance(found, dict | types.MappingProxyType) else {}


def called_of(node: ast.expr, names: Mapping[str, Any]) -> tuple[str, Any]:
    """The full name of what is called, and the object whose method it is (``UNKNOWN``: none)."""
    if isinstance(node, ast.Attribute):
        owner = value_of(node.value, names)
        if owner is UNKNOWN:
            return "", UNKNOWN
        if isinstance(owner, type):
            return _method_of(owner, node.attr), UNKNOWN
        found = attribute(owner, node.attr)
        if found is UNKNOWN:
            return _method_of(type(owner), node.attr), owner
        return name_of(found), getattr(found, "__self__", UNKNOWN) if _bound(found) else UNKNOWN
    found = value_of(node, names)
    if found is UNKNOWN:
        return "", UNKNOWN
    return name_of(found), found.__self__ if _bound(found) else UNKNOWN


def _method_of(kind: type, name: str) -> str:
    """Of a class in which the method is found; empty where it has none."""
    if any(name in vars(one) for one in kind.__mro__):
        return f"{kind.__module__}.{kind.__qualname__}.{name}"
    return ""


def _bound(value: Any) -> bool:
    """Whether it is a method of an object, by the kinds that Python itself has for those."""
    bound = type(value).__name__ in ("method", "builtin_function_or_method", "method-wrapper")
    owner = getattr(value, "__self__", None) if bound else None
    return owner is not None and not isinstance(owner, types.ModuleType | type)


def name_of(value: Any) -> str:
    """``numpy.random.mtrand.RandomState.choice``: of a function, a class, or a method with the
    class of its object."""
    if _bound(value):
        kind = type(value.__self__)
        return f"{kind.__module__}.{kind.__qualname__}.{value.__name__}"
    kind = type(value)
    known = ("function", "builtin_function_or_method", "_ArrayFunctionDispatcher", "method")
    if isinstance(value, type) or kind.__name__ in known or kind.__name__ == "ufunc":
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", "")
        owner = getattr(value, "__self__", None)
        module = getattr(value, "__module__", None) or getattr(owner, "__module__", None) or ""
        if isinstance(owner, types.ModuleType) and not getattr(value, "__module__", None):
            module = owner.__name__
        return f"{module}.{name}".replace("_VariableFunctionsClass.", "")
    return f"{kind.__module__}.{kind.__qualname__}.__call__"
