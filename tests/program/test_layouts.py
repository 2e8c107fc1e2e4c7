"""The line of a program that turns dimensions, on programs written here."""

import ast
import textwrap
from pathlib import Path

import pytest

from pinchpoint.program.files import Source
from pinchpoint.program.layouts import dense_where_turned


def edit(text):
    text = textwrap.dedent(text).lstrip("\n")
    return dense_where_turned(Source(Path("flow.py"), text, ast.parse(text)))


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("f = state.movedim(-1, 0)", "    f = state.movedim(-1, 0).contiguous()"),
        ("return table.T", "    return table.T.contiguous()"),
        ("f = torch.permute(state, (1, 0))", "    f = torch.permute(state, (1, 0)).contiguous()"),
    ],
)
def test_what_is_turned_and_kept_is_made_dense(line, after):
    found = edit(f"def restore(state, table):\n    {line}\n    return f\n")
    assert (found.first, found.new) == (2, (after,))


@pytest.mark.parametrize(
    "line",
    [
        "f = state.movedim(-1, 0).contiguous()",  # it is dense already
        "f = state.t() @ table.t()",  # which of both
        "f = (state + table)",
        "f = state.permute(1, 0).reshape(4, -1)",
        "f = product(state.t())",  # a product takes any order
    ],
)
def test_nothing_fits(line):
    assert edit(f"def restore(state, table):\n    {line}\n    return f\n") is None
