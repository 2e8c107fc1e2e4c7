"""Commands stay whole in printed text."""

import shlex

import pytest

from pinchpoint.report.blocks import Command, Page, Text
from pinchpoint.report.terminal import GLUE, Look, render, spaced, unbroken, whole


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("pinchpoint ranks 'a b' c", 1),
        ("record again, then: pinchpoint ranks DIR", 4),
        ("use pinchpoint ranks", 3),
        ("a python without a command", 5),
        ("python -m x", 1),
    ],
)
def test_only_the_command_is_kept_together(text, pieces):
    glued = unbroken(text)
    assert len(glued.split(" ")) == pieces
    assert spaced(glued) == text


def test_code_is_kept_with_its_indent():
    assert whole("  x = 1") == f"{GLUE}{GLUE}x{GLUE}={GLUE}1"


@pytest.mark.parametrize("block", [Text, Command])
def test_in_a_terminal_a_long_command_goes_on_below_and_is_the_same_in_a_shell(block):
    command = (
        "pinchpoint run -o after -- python 'my  train.py' --steps 20 && pinchpoint compare a b"
    )
    page = Page((block(command, label="confirm"),))
    assert command in render(page, Look(width=40))
    text = render(page, Look(width=40, continues=True))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 40
    assert all(line.endswith(" \\") for line in lines[:-1])
    pasted = text.removeprefix("confirm: ").replace("\\\n", "")
    assert shlex.split(pasted) == shlex.split(command)


def test_code_and_a_command_with_an_open_quote_stay_whole():
    code = "model = torch.compile(model, mode='reduce-overhead', dynamic=False)"
    for text in (code, "pinchpoint run 'it never ends in the width of this terminal"):
        assert text in render(Page((Command(text),)), Look(width=40, continues=True))
