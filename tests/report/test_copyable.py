"""Commands stay whole in printed text."""

import pytest

from pinchpoint.report.terminal import GLUE, spaced, unbroken, whole


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
