"""Changes of the text of a file that keep its form."""

import ast
from itertools import accumulate

from pinchpoint.frozen import dataclass
from pinchpoint.program.files import Source


@dataclass(frozen=True)
class Edit:
    """Lines ``first`` to ``last`` (from 1) become ``new``."""

    first: int
    last: int
    new: tuple[str, ...]


def name_of(call: ast.Call) -> str:
    """What a call calls, as it is written; empty where that is no name."""
    return ast.unparse(call.func) if isinstance(call.func, ast.Name | ast.Attribute) else ""


def with_keywords(source: Source, call: ast.Call | None, keywords: dict[str, str]) -> Edit | None:
    """The call with these keywords set; None if it has them already."""
    if call is None or not keywords:
        return None
    there = {k.arg: k.value for k in call.keywords if k.arg}
    changes = [
        (*_span(source, there[k]), value)
        for k, value in keywords.items()
        if k in there and text_of(source, there[k]) != value
    ]
    new = ", ".join(f"{k}={value}" for k, value in keywords.items() if k not in there)
    if new:
        before = source.text.encode()[: _span(source, call)[1] - 1].rstrip()
        lead = "" if before.endswith(b"(") else " " if before.endswith(b",") else ", "
        end = "," if before.endswith(b",") else ""
        changes.append((len(before), len(before), f"{lead}{new}{end}"))
    return _changed(source, call, changes) if changes else None


def replaced(source: Source, inside: ast.AST, changes: list[tuple[ast.expr, str]]) -> Edit | None:
    """The lines of a node with some of its expressions replaced."""
    return _changed(source, inside, [(*_span(source, node), text) for node, text in changes])


def _changed(source: Source, inside: ast.AST, changes: list[tuple[int, int, str]]) -> Edit | None:
    """The lines of a node with these stretches of bytes replaced."""
    first, last = inside.lineno, inside.end_lineno  # type: ignore[attr-defined]
    starts = _starts(source)
    data = source.text.encode()
    begin, end = starts[first - 1], starts[last] - 1 if last < len(starts) else len(data)
    for start, stop, text in sorted(changes, reverse=True):
        data = data[:start] + text.encode() + data[stop:]
        end += len(text.encode()) - (stop - start)
    return Edit(first, last, tuple(data[begin:end].decode().split("\n")))


def _starts(source: Source) -> list[int]:
    """Where each line begins, in bytes."""
    lengths = [len(line.encode()) + 1 for line in source.lines]
    return list(accumulate(lengths, initial=0))[:-1]


def _span(source: Source, node: ast.expr) -> tuple[int, int]:
    starts = _starts(source)
    last = node.end_lineno or node.lineno
    return starts[node.lineno - 1] + node.col_offset, starts[last - 1] + (node.end_col_offset or 0)


def text_of(source: Source, node: ast.AST) -> str:
    """The text of a node."""
    return ast.get_source_segment(source.text, node) or ""


def in_line(source: Source, number: int, old: str, new: str) -> Edit:
    """One line with a piece of it replaced."""
    return Edit(number, number, (source.lines[number - 1].replace(old, new, 1),))


def indent(source: Source, statement: ast.stmt) -> str:
    """What stands before a statement in its line."""
    return source.lines[statement.lineno - 1][: statement.col_offset]
