import pytest

from pinchpoint.report.plain import ascii_only, plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("aten::mm", "aten::mm", id="ordinary"),
        pytest.param("größe", "größe", id="letters of any language"),
        pytest.param("a\x00b", "a\ufffdb", id="NUL"),
        pytest.param("\x1b[31mred", "\ufffd[31mred", id="ANSI colour"),
        pytest.param("a\u202eb", "a\ufffdb", id="right-to-left override"),
        pytest.param("a\n\tb\u2028c", "a  b c", id="line breaks"),
        pytest.param("a\ud800b", "a\ufffdb", id="lone surrogate"),
    ],
)
def test_plain(text, shown):
    assert plain(text) == shown


def test_long_names_are_cut():
    shown = plain("x" * 1_000_000, limit=50)
    assert len(shown) == 50
    assert shown.endswith("…")


def test_ascii_only():
    assert ascii_only("14.9 → 10.6 ms · 8 × █ ü…") == "14.9 -> 10.6 ms - 8 x # ?~"
