"""JSON as recorders really write it: the exact meaning of the text, in plain Python.

Strict readers refuse many real traces: control characters in names, ``NaN``, ``N/A``, missing or
trailing commas, numbers in quotes, a cut end. This module defines what such text means; the
native scanner does the same in C, and tests hold the two together.

Inside an object, blanks and commas may stand anywhere between members. A value is a string, a
bracketed value (only its brackets and strings are looked at), or a scalar, which ends before
``,``, ``}``, ``]`` or a line end. Of keys that occur twice the last one counts. Keys are compared
as they are written.
"""

import contextlib
import json
import re
from enum import IntEnum

from pinchpoint.importers.kineto.reading.fields import (
    ARGUMENT_KEYS,
    ARGUMENTS,
    EVENT_KEYS,
    LINK_KEY,
    LONGEST_LINKED,
    NO_LINK,
    NULL,
    Form,
)
from pinchpoint.regex import regex

_LARGEST_EXPONENT = 99_999  # more is the same: zero, or too large
SURE_DIGITS = 19  # always fit in 64 bits; 1.7e15 µs with three decimals needs all of them


class Status(IntEnum):
    """How scanning a stretch of text ended."""

    MORE = 0  # the text ends before the next event does
    DONE = 1  # at the bracket that closes the list of events
    BAD = 2  # at something that is no event
    LONG = 3  # at an event that is longer than the limit


class Incomplete(Exception):
    """The text ends inside a value."""


class Malformed(Exception):
    """The text at this place is not what it must be."""


class Boundless(Exception):
    """A value nests deeper, or holds more brackets, than any recorder writes."""


# Nothing outside the events comes near: the ranks of each process group are the largest list.
DEEPEST, MOST_BRACKETS = 512, 1 << 23


# Possessive (*+): what was matched is never given back, so that text without an end takes linear
# time.
_BLANKS = regex(rb"[\x00-\x20]*+")
_SEPARATORS = regex(rb"[\x00-\x20,]*+")
_STRING = regex(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SCALAR = regex(rb"[^,}\]\r\n]*+")
_BRACKET = regex(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}"]', re.DOTALL)
_NUMBER = regex(rb"(-?)([0-9]*+)(?:\.([0-9]*+))?+(?:[eE]([+-]?[0-9]++))?+")
_PLAIN_DECIMAL = regex(rb"([0-9]{1,15})\.([0-9]{3})")

_EVENT_COLUMNS = {key.text.encode(): key.column for key in EVENT_KEYS}
_ARGUMENT_COLUMNS = {key.text.encode(): key.column for key in ARGUMENT_KEYS}
_LINK = regex(rb'(?:"(0|[1-9][0-9]{0,17})"|(0|[1-9][0-9]{0,17}))\Z')
_LINK_MEMBER = regex(LINK_KEY + rb"[\x00-\x20]*+:[\x00-\x20]*+")

# A place that looks like the beginning of the next event. Only a guess: it may lie inside nested
# arguments. Blanks are bounded, so that looking for one takes linear time.
BOUNDARY = regex(
    rb"\}[\x00-\x20]{0,64},[\x00-\x20]{0,64}"
    rb'(?=\{[\x00-\x20]{0,64}"(?:ph|name|cat|args|pid|tid|ts|dur)")'
)
BOUNDARY_BYTES = 256  # no boundary is longer, with what must follow it


def skip_blanks(text: bytes, at: int, end: int) -> int:
    """The next position that is no blank."""
    found = _BLANKS.match(text, at, end)
    return found.end() if found else at


def skip_separators(text: bytes, at: int, end: int) -> int:
    """The next position that is neither blank nor comma."""
    found = _SEPARATORS.match(text, at, end)
    return found.end() if found else at


def skip_value(text: bytes, at: int, end: int, *, bounded: bool = False) -> int:
    """The position after the value at ``at``; Incomplete if it does not end before ``end``.

    A ``bounded`` one is Boundless beyond ``DEEPEST`` and ``MOST_BRACKETS``; the length of an event
    is bounded already.
    """
    first = text[at : at + 1]
    if first == b'"':
        return _end_of_string(text, at, end)
    if first in (b"{", b"["):
        return _end_of_brackets(text, at, end, bounded=bounded)
    found = _SCALAR.match(text, at, end)
    stop = found.end() if found else at
    if stop >= end:
        raise Incomplete
    while stop > at and text[stop - 1] <= 32:
        stop -= 1
    return stop


def _end_of_string(text: bytes, at: int, end: int) -> int:
    found = _STRING.match(text, at, end)
    if found is None:
        raise Incomplete
    return found.end()


def _end_of_brackets(text: bytes, at: int, end: int, *, bounded: bool) -> int:
    depth = 0
    for count, found in enumerate(_BRACKET.finditer(text, at, end)):
        token = found.group()
        if bounded and (depth > DEEPEST or count > MOST_BRACKETS):
            raise Boundless
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return found.end()
        elif len(token) == 1:
            break
    raise Incomplete


def key_at(text: bytes, at: int, end: int) -> tuple[bytes, int]:
    """The key at ``at`` and the position of its value."""
    if text[at] != ord('"'):
        raise Malformed
    stop = _end_of_string(text, at, end)
    key = text[at + 1 : stop - 1]
    at = skip_blanks(text, stop, end)
    if at >= end:
        raise Incomplete
    if text[at] != ord(":"):
        raise Malformed
    at = skip_blanks(text, at + 1, end)
    if at >= end:
        raise Incomplete
    return key, at


def event_at(text: bytes, at: int, end: int) -> tuple[dict[str, bytes], int]:
    """The known members of the event at ``at``, as they are written, by column; and its end."""
    members: dict[str, bytes] = {}
    arguments: dict[str, bytes] = {}
    at += 1
    while (at := skip_separators(text, at, end)) < end:
        if text[at] == ord("}"):
            return members | arguments, at + 1
        key, at = key_at(text, at, end)
        if key == b"args" and text[at] == ord("{"):
            arguments, at = _arguments_at(text, at, end)
            continue
        stop = skip_value(text, at, end)
        column = _EVENT_COLUMNS.get(key)
        if column:
            members[column] = text[at:stop]
        at = stop
    raise Incomplete


def _arguments_at(text: bytes, at: int, end: int) -> tuple[dict[str, bytes], int]:
    begin = at
    arguments: dict[str, bytes] = {}
    at += 1
    while (at := skip_separators(text, at, end)) < end:
        if text[at] == ord("}"):
            arguments[ARGUMENTS] = text[begin : at + 1]
            return arguments, at + 1
        key, at = key_at(text, at, end)
        stop = skip_value(text, at, end)
        column = _ARGUMENT_COLUMNS.get(key)
        if column:
            arguments[column] = text[at:stop]
        at = stop
    raise Incomplete


def decimal(text: bytes, shift: int) -> int | None:
    """A decimal number times ``10**shift`` as an integer, halves away from zero.

    Exact for as many digits as fit in 64 bits, 19 at least; decimals beyond them are dropped.
    None if the text is no number or the result needs more than 64 bits.
    """
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    sign, whole, fraction, exponent = found.groups(b"")
    if not whole and not fraction:
        return None
    digits = (whole + fraction).lstrip(b"0")
    if not digits:
        return 0
    size = SURE_DIGITS + 1
    kept = int(digits[:size])
    if kept >= 2**64:
        size = SURE_DIGITS
        kept = int(digits[:size])
    dropped = max(0, len(digits) - size)
    power = shift - len(fraction) + dropped + _exponent(exponent)
    if dropped and power > 0:
        return None
    value = _scaled(kept, power)
    if value is None:
        return None
    return -value if sign else value


def _exponent(text: bytes) -> int:
    size = int(text.lstrip(b"+-0")[:7] or b"0")
    size = min(size, _LARGEST_EXPONENT)
    return -size if text[:1] == b"-" else size


def _scaled(kept: int, power: int) -> int | None:
    if power < -SURE_DIGITS:
        return 0
    if power < 0:
        unit: int = 10**-power
        return kept // unit + (kept % unit >= unit // 2)
    if power > SURE_DIGITS:
        return None
    value: int = kept * 10**power
    return value if value < 2**64 else None


def number(token: bytes, form: Form) -> int:
    """The value of a token, which may stand in quotes, as a column keeps it; NULL if none."""
    if form is Form.LINK:
        found = _LINK.match(token)
        return NULL if found is None else int(found[1] or found[2])
    if form is Form.INTEGER and token.isdigit() and len(token) < SURE_DIGITS:
        return int(token)
    if form is Form.NANOSECONDS and (plain := _PLAIN_DECIMAL.fullmatch(token)):
        return int(plain[1] + plain[2])
    if token[:1] == b'"':
        token = token[1:-1]
    shift = 3 if form in (Form.NANOSECONDS, Form.THOUSANDTHS) else 0
    value = decimal(token, shift)
    if value is None:
        return NULL
    if form is Form.ADDRESS:
        return (value + 2**63) % 2**64 - 2**63
    return value if -(2**63) < value < 2**63 else NULL


def without_link(arguments: bytes, token: bytes) -> tuple[bytes, int]:
    """Arguments with ``NO_LINK`` for their link, whose ``token`` is given, and the link.

    Unchanged, and NULL, where the token is no plain number or the key stands there twice.
    """
    link = number(token, Form.LINK)
    if link == NULL or len(arguments) > LONGEST_LINKED or arguments.count(LINK_KEY) != 1:
        return arguments, NULL
    found = _LINK_MEMBER.search(arguments)
    if found is None:
        return arguments, NULL
    at = found.end()
    return arguments[:at] + NO_LINK + arguments[at + len(token) :], link


def content(token: bytes, form: Form) -> bytes | None:
    """The text of a token that a column interns, or None."""
    quoted = token[:1] == b'"'
    if form is Form.TEXT:
        return token[1:-1] if quoted else None
    if token in (b"", b"null"):
        return None
    if form is Form.TOKEN:
        if quoted:
            return token[1:-1]
        return None if token[:1] in (b"{", b"[") else token
    return token


def phase(token: bytes) -> int:
    """The code of a phase, 0 if it is no single character."""
    return token[1] if len(token) == 3 and token[:1] == b'"' else 0


def value_text(raw: bytes, *, escaped: bool = True) -> str:
    """The text between quotes as people read it, on one line.

    Broken escapes stay as they are written; what is no text becomes U+FFFD.
    """
    text = raw.decode("utf-8", "replace")
    if escaped and "\\" in text:
        with contextlib.suppress(ValueError):
            text = json.loads(f'"{text}"', strict=False)
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text if text.isprintable() else _CONTROL.sub("�", text)


_CONTROL = regex(r"[\x00-\x1f\x7f-\x9f]")
