import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.report.plain import ascii_only, escaped, one_line, plain


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


def test_text_of_any_length_as_one_line():
    assert one_line("a\u202eb\n" * 1000) == "a\ufffdb " * 1000


@given(st.text())
def test_escaped_json_says_the_same(text):
    document = {text: [text]}
    shown = escaped(json.dumps(document, ensure_ascii=False))
    assert json.loads(shown) == document
    assert not set(shown) & set("\x7f\x85\x9b\u200f\u2028\u202e\u2066\ufeff\U000e0041")


def test_escaped_json_keeps_what_can_be_read():
    shown = escaped('["größe 測 \u202e\x9b\U000e0041"]')
    assert shown == '["größe 測 \\u202e\\u009b\\udb40\\udc41"]'
