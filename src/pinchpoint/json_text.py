"""Documents as JSON, whatever bytes the names of files have.

On Unix a name need not be UTF-8: Python holds the bytes that are not as lone surrogates, and JSON
has no way to say these. They are written as ``\\xff``, as shells and Python show them.
"""

import re
from typing import Any, TypeVar

import msgspec

from pinchpoint.regex import regex

Document = TypeVar("Document")

_NO_UNICODE = regex("[\ud800-\udfff]")
_BYTE = range(0xDC80, 0xDD00)  # a byte from 0x80 on, as PEP 383 holds it


def said(text: str) -> str:
    r"""``text`` as valid Unicode: a byte that is none is ``\xff``, a lone half ``\ud800``."""
    return text if text.isascii() else _NO_UNICODE.sub(_escape, text)


def decoded(text: bytes | str, kind: type[Document]) -> Document:
    """A document of a kind from its JSON; msgspec.DecodeError whatever is wrong with the text:
    bytes that are no UTF-8 and lists in lists without end too, for which msgspec has others."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (UnicodeError, RecursionError, TypeError) as error:  # TypeError: it is no text at all
        raise msgspec.DecodeError(str(error)) from error


def encoded(document: object) -> bytes:
    """A document as JSON in UTF-8. Raises what ``msgspec`` raises of types that JSON lacks."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return msgspec.json.encode(_said(msgspec.to_builtins(document)))


def indented(document: object) -> bytes:
    """The same for people, one field a line."""
    return msgspec.json.format(encoded(document), indent=1)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code - 0xDC00:02x}" if code in _BYTE else f"\\u{code:04x}"


def _said(value: Any) -> Any:
    if isinstance(value, str):
        return said(value)
    if isinstance(value, dict):
        return {_said(key): _said(each) for key, each in value.items()}
    return [_said(each) for each in value] if isinstance(value, list | tuple) else value
