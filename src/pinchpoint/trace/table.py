"""A frozen table of numpy columns with explicit nulls."""

from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import DTypeLike

from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Array, Ints, Mask
from pinchpoint.trace.tables import TABLES


@dataclass(frozen=True, eq=False)
class Table:
    """Equally long, read-only columns of one declared table.

    ``columns`` has every declared column. ``missing`` has a boolean mask for each nullable
    column that has at least one null. What a column holds under its mask has no meaning.
    """

    name: str
    columns: Mapping[str, Array]
    missing: Mapping[str, Mask]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, column: str) -> Array:
        return self.columns[column]

    @property
    def end_ns(self) -> Ints:
        """``start_ns + duration_ns`` of each row."""
        end: Ints = self.columns["start_ns"] + self.columns["duration_ns"]
        return end

    def known(self, column: str) -> Mask:
        """True where the column has a value; shape ``(rows,)``."""
        mask = self.missing.get(column)
        return np.ones(len(self), np.bool_) if mask is None else ~mask

    def filled(self, column: str, fill: int | float) -> Array:
        """A copy of the column with ``fill`` in place of nulls, for local arithmetic."""
        values = self.columns[column].copy()
        mask = self.missing.get(column)
        if mask is not None:
            values[mask] = fill
        return values

    def value(self, column: str, row: int) -> int | float | None:
        """One value as a Python number, or None where it is null."""
        mask = self.missing.get(column)
        if mask is not None and mask[row]:
            return None
        number: int | float = self.columns[column][row].item()
        return number

    def take(self, rows: Array) -> "Table":
        """The given rows (positions or a mask) as a table of its own.

        Row references (``parent``, ``api_call``, …) keep pointing into the original tables.
        """
        return Table(
            self.name,
            MappingProxyType({k: _frozen(v[rows]) for k, v in self.columns.items()}),
            MappingProxyType({k: _frozen(v[rows]) for k, v in self.missing.items()}),
        )


def table(
    name: str, columns: Mapping[str, Array], missing: Mapping[str, Mask] | None = None
) -> Table:
    """A table that is exactly as declared in ``TABLES``; ValueError if it is not.

    A nullable column that is left out is null everywhere. Arrays are cast to the declared type
    and made read-only. Rows must already be in order.
    """
    declared = TABLES[name]
    given = dict(columns)
    masks = {k: np.asarray(v, np.bool_) for k, v in (missing or {}).items() if np.any(v)}
    if unknown := sorted((set(given) | set(masks)) - set(declared)):
        raise ValueError(f"{name}: undeclared columns {unknown}")
    if not given:
        raise ValueError(f"{name}: no columns")
    rows = len(next(iter(given.values())))
    out: dict[str, Array] = {}
    for column, spec in declared.items():
        if column not in given:
            if not spec.nullable:
                raise ValueError(f"{name}.{column} is required")
            out[column] = np.broadcast_to(np.zeros((), spec.dtype), (rows,))
            masks[column] = np.broadcast_to(np.ones((), np.bool_), (rows,))
            continue
        if column in masks and not spec.nullable:
            raise ValueError(f"{name}.{column} may not be null")
        values = _cast(np.asarray(given[column]), spec.dtype, masks.get(column))
        if values.shape != (rows,) or (column in masks and masks[column].shape != (rows,)):
            raise ValueError(f"{name}.{column}: expected {rows} rows, got {values.shape}")
        out[column] = _frozen(values)
    return Table(
        name,
        MappingProxyType(out),
        MappingProxyType({k: _frozen(v) for k, v in masks.items()}),
    )


def _cast(values: Array, dtype: DTypeLike, missing: Mask | None) -> Array:
    """Raises OverflowError for a number that no integer holds: numpy makes floats of such ones."""
    if values.dtype.kind == "f" and np.issubdtype(dtype, np.integer) and len(values):
        values, bounds = (
            np.where(False if missing is None else missing, 0.0, values),
            np.iinfo(dtype),
        )
        if not ((values >= bounds.min) & (values < float(bounds.max) + 1)).all():
            raise OverflowError(f"a number that does not fit {bounds.dtype}")
    return values.astype(dtype, copy=False)


def once_per_table(question: Callable[[Table], Array]) -> Callable[[Table], Array]:
    """Remember a column that is worked out of a table's own for as long as the table lives."""
    remembered: WeakKeyDictionary[Table, Array] = WeakKeyDictionary()

    @wraps(question)
    def ask(table: Table) -> Array:
        try:
            return remembered[table]
        except KeyError:
            answer = remembered[table] = _frozen(question(table))
            return answer

    return ask


def empty_table(name: str) -> Table:
    """A table that is there and has no rows."""
    return table(name, {k: np.zeros(0, c.dtype) for k, c in TABLES[name].items()})


def _frozen(values: Array) -> Array:
    values = values.view()
    values.flags.writeable = False
    return values
