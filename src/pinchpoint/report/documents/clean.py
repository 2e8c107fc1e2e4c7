"""A report whose every text is safe to show; renderers for people draw only this."""

from typing import Any, TypeVar

import msgspec

from pinchpoint.report.documents.report import Report
from pinchpoint.report.plain import plain

Document = TypeVar("Document", bound=msgspec.Struct)

_SENTENCE_LIMIT = 600  # characters; sentences carry names, and names can have megabytes
_NAME_LIMIT = 160  # a kernel name longer than this says no more to a reader
# A template's own function stands behind its shell: within 300 characters in tables of nsys stats.
_ROW_LIMIT = 400
_CODE = {"lines", "edited"}  # of the program, one text a line
_LIMITS = {"rows": _ROW_LIMIT, "name": _NAME_LIMIT}
_LINES_KEPT = {"hint"}  # a line or two of code, written by a rule


def clean(report: Report) -> Report:
    """The same report with every text made one printable line of bounded length."""
    return cleaned(report)


def cleaned(document: Document) -> Document:
    """The same for any document."""
    return msgspec.convert(_cleaned(msgspec.to_builtins(document), ""), type(document))


def _cleaned(value: Any, field: str) -> Any:
    if isinstance(value, str):
        if field in _LINES_KEPT:
            return "\n".join(plain(line, _SENTENCE_LIMIT) for line in value.splitlines())
        return plain(value, _LIMITS.get(field, _SENTENCE_LIMIT))
    if isinstance(value, dict):
        return {_key(key): _cleaned(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if field in _CODE:
            return [_line_of_code(item) for item in value]
        return [_cleaned(item, field) for item in value]
    return value


def _line_of_code(line: Any) -> Any:
    """A line of the program with its indent, or no text at all."""
    if not isinstance(line, str):
        return _cleaned(line, "")
    return plain(line.replace("\t", "    "), _SENTENCE_LIMIT)


def _key(key: Any) -> Any:
    # Keys can be names too: devices by name, facts by what a profiler calls them.
    return plain(key, _NAME_LIMIT) if isinstance(key, str) else key
