import pytest

from pinchpoint.importers.kineto.reading.fields import NULL, Form
from pinchpoint.importers.kineto.reading.lenient import (
    BOUNDARY,
    Incomplete,
    Malformed,
    content,
    decimal,
    event_at,
    number,
    skip_value,
    value_text,
)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("4958390942407.892", 4958390942407892),
        ("1712169113264587.123", 1712169113264587123),  # a float is off by 123 here
        ("1682725898236567", 1682725898236567000),
        ("0.5", 500),
        ("0.0004", 0),
        ("0.0005", 1),
        ("-0.0005", -1),
        ("1.5e3", 1500000),
        ("15E-1", 1500),
        ("1e-400", 0),
        ("0e999999", 0),
        (".25", 250),
        ("7.", 7000),
        ("9223372036854775.807", 2**63 - 1),
        ("00012345678901234567890e-10", 1234567890123),
    ],
)
def test_microseconds_become_exact_nanoseconds(text, nanoseconds):
    assert decimal(text.encode(), 3) == nanoseconds
    assert number(f'"{text}"'.encode(), Form.NANOSECONDS) == nanoseconds


@pytest.mark.parametrize("text", ["", "-", ".", "e5", "1e", "+1", "0x1", "1 2", "NaN", "1e30"])
def test_what_is_no_number(text):
    assert decimal(text.encode(), 3) is None
    assert number(text.encode(), Form.NANOSECONDS) == NULL


def test_integers_beyond_64_bits_are_unknown_and_addresses_keep_their_bits():
    assert number(b"9223372036854775807", Form.INTEGER) == 2**63 - 1
    assert number(b"9223372036854775808", Form.INTEGER) == NULL
    assert number(b"18446744073709551615", Form.ADDRESS) == -1
    assert number(b"18446744073709551616", Form.ADDRESS) == NULL


def test_texts_and_tokens():
    assert content(b'"a"', Form.TEXT) == b"a"
    assert content(b"5", Form.TEXT) is None
    assert content(b"5", Form.TOKEN) == b"5"
    assert content(b'"stream 7"', Form.TOKEN) == b"stream 7"
    assert content(b"null", Form.TOKEN) is None
    assert content(b"[[2, 3]]", Form.JSON) == b"[[2, 3]]"


@pytest.mark.parametrize(
    ("value", "end"),
    [
        ('"a\\"b" ,', 6),
        ("[[1], {}] ,", 9),
        ('{"a": "]"},', 10),
        ("5  ,", 1),
        ("N/A}", 3),
        ("a b\n", 3),
    ],
)
def test_where_a_value_ends(value, end):
    assert skip_value(value.encode(), 0, len(value)) == end


@pytest.mark.parametrize("value", ['"abc', '"abc\\"', "[1, 2", '{"a": "b}', "12"])
def test_a_value_that_does_not_end(value):
    with pytest.raises(Incomplete):
        skip_value(value.encode(), 0, len(value))


def test_an_event_and_its_arguments():
    text = b'{"name": "a",, "args": {"stream": 7, "x": {"stream": 8},}, "ts": 5,} rest'
    members, end = event_at(text, 0, len(text))
    assert members["name"] == b'"a"'
    assert members["stream"] == b"7"
    assert members["arguments"] == b'{"stream": 7, "x": {"stream": 8},}'
    assert text[end:] == b" rest"


def test_a_quote_too_many_is_malformed():
    text = b'{"name": "say "hello" to", "ts": 5}'
    with pytest.raises(Malformed):
        event_at(text, 0, len(text))


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a\\u00e9\\n", "aé�"),
        (b"tab\there", "tab�here"),
        (b"\\ud800", "�"),
        (b"bad \\x escape", "bad \\x escape"),
        (b"\xff", "�"),
    ],
)
def test_names_are_one_line_of_text(raw, text):
    assert value_text(raw) == text


def test_boundaries():
    text = b'[{"a": [{"b": 1}, {"c": 2}]},\n  {"ph": "X"}, {"name": 1}'
    assert [m.end() for m in BOUNDARY.finditer(text)] == [
        text.index(b'{"ph'),
        text.index(b'{"name'),
    ]
