"""Every number that decides something says where it is from, on its line or right above it."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import pinchpoint

HOME = Path(pinchpoint.__file__).parent
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")


def without_a_reason(text: str) -> Iterator[str]:
    """Names of module-level numeric constants without a comment of their own."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {t.start[0]: t.line.lstrip().startswith("#") for t in tokens if t.string[:1] == "#"}
    for statement in ast.parse(text).body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or not _is_number(statement.value):
            continue
        lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        if comments.get(statement.lineno - 1) or any(line in comments for line in lines):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        yield from (name for name in names if CONSTANT.fullmatch(name))


def _is_number(value: ast.expr | None) -> bool:
    """Whether a value is a number, a tuple of numbers, or arithmetic with them."""
    match value:
        case ast.Constant(value=number):
            return isinstance(number, int | float) and not isinstance(number, bool)
        case ast.Tuple(elts=parts):
            return bool(parts) and all(map(_is_number, parts))
        case ast.UnaryOp(operand=part):
            return _is_number(part)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) or _is_number(right)
    return False


def test_what_counts_as_a_reason():
    text = """
A = 1
B = 2  # measured
# as published
C = 3
D = 4
E, F = 0.5, 1 << 20
_G: int = -5
NAMES = ("a", "b")
ON = True
small = 1
H = (
    1,  # why
    2,
)
"""
    assert list(without_a_reason(text)) == ["A", "D", "E", "F", "_G"]


PACKAGES = "analysis bench compare diagnosis hardware importers jobs report trace"


@pytest.mark.parametrize("package", PACKAGES.split())
def test_numbers_that_decide_have_reasons(package):
    missing = {
        f"{path.relative_to(HOME).as_posix()}:{name}"
        for path in (HOME / package).rglob("*.py")
        for name in without_a_reason(path.read_text())
    }
    assert missing == set(), "say on or above its line why it has this value"
