"""Rows of documents in the order of a column that is asked for: largest first, unknown last."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from pinchpoint.errors import UsageError
from pinchpoint.report.documents.ranks import RanksReport
from pinchpoint.report.documents.report import Report, ResultTable

Item = TypeVar("Item", bound=msgspec.Struct)
SMALLEST_FIRST = ("step_if_free_ns", "step_at_limit_ns", "step_without_host_ns")  # the most gain


def by_column(table: ResultTable, name: str) -> ResultTable:
    """A table by one of its columns, named by its id or its label, which comes second: a narrow
    screen cuts the last ones. Raises UsageError."""
    labels = {text: at for at, c in enumerate(table.columns) for text in (c.id, c.label)}
    if name not in labels:
        raise _unknown(name, [column.id for column in table.columns])
    at = labels[name]
    rows = sorted(table.rows, key=lambda row: _key(row[at], smallest_first=False))
    order = [0, *([at] if at else []), *(i for i in range(1, len(table.columns)) if i != at)]
    return msgspec.structs.replace(
        table,
        columns=tuple(table.columns[i] for i in order),
        rows=tuple(tuple(row[i] for i in order) for row in rows),
    )


Document = TypeVar("Document", bound=Report | RanksReport)


def tables_by(documents: Sequence[Document], name: str) -> list[Document]:
    """Documents with tables in the order of a column, where they have it. Raises UsageError."""
    known = {c.id: c.label for one in documents for t in one.tables.values() for c in t.columns}
    if documents and name not in {*known, *known.values()}:
        raise _unknown(name, list(known))
    return [
        msgspec.structs.replace(one, tables={key: _by(t, name) for key, t in one.tables.items()})
        for one in documents
    ]


def _by(table: ResultTable, name: str) -> ResultTable:
    named = {text for c in table.columns for text in (c.id, c.label)}
    return by_column(table, name) if name in named else table


def by_field(items: Sequence[Item], name: str, of: type[Item]) -> tuple[Item, ...]:
    """Items of a kind by a field, with or without the unit at its end. Raises UsageError, also
    where there are none."""
    if not items:
        if _field(name, of.__struct_fields__) is None:
            raise _unknown(name, of.__struct_fields__)
        return ()
    field = field_named(items, name)
    smallest = field in SMALLEST_FIRST
    return tuple(sorted(items, key=lambda one: _key(getattr(one, field), smallest_first=smallest)))


def field_named(items: Sequence[Item], name: str) -> str:
    """The field of some items, given with or without the unit at its end. Raises UsageError."""
    fields = items[0].__struct_fields__
    field = _field(name, fields)
    plain = [f for f in fields if not isinstance(getattr(items[0], f), (tuple, dict))]
    if field is None or field not in plain:
        raise _unknown(name, plain)
    return field


def _field(name: str, fields: Sequence[str]) -> str | None:
    return next((f for f in (name, f"{name}_ns", f"{name}_bytes") if f in fields), None)


def _key(value: Any, *, smallest_first: bool) -> tuple[int, float, str]:
    if value is None:
        return 2, 0.0, ""
    if isinstance(value, (int, float)):
        return 0, value if smallest_first else -value, ""
    return 1, 0.0, str(value)


def _unknown(name: str, known: Sequence[str]) -> UsageError:
    return UsageError(f"no column {name!r}", hint=f"--sort with one of {', '.join(known)}")
