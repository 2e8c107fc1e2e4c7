"""The line of a program that turns the dimensions of a tensor, and what makes it dense there."""

import ast

from pinchpoint.program.changes import Edit, name_of, replaced, text_of
from pinchpoint.program.files import Source

_METHODS = ("permute", "transpose", "movedim", "moveaxis", "swapaxes", "swapdims", "t")
_ATTRIBUTES = ("T", "mT", "H", "mH")


def dense_where_turned(source: Source) -> Edit | None:
    """``.contiguous()`` after the one expression of a file that turns dimensions and whose result
    is kept or given back as it is; None where there are several, or none."""
    kept = [node.value for node in ast.walk(source.tree) if isinstance(node, _KEEPS) and node.value]
    turned = [node for node in ast.walk(source.tree) if _turns(node)]
    if len(turned) != 1 or not any(turned[0] is value for value in kept):
        return None
    (node,) = turned
    assert isinstance(node, ast.expr)
    return replaced(source, node, [(node, f"{text_of(source, node)}.contiguous()")])


_KEEPS = (ast.Assign, ast.AnnAssign, ast.Return)


def _turns(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return name_of(node).rpartition(".")[2] in _METHODS
    return isinstance(node, ast.Attribute) and node.attr in _ATTRIBUTES
