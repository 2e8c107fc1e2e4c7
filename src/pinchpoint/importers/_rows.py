"""Tables from rows, for formats whose events are few enough to be looked at one by one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pinchpoint.trace import TABLES, Names, Table, empty_table, table

Row = dict[str, Any]


def table_of_rows(name: str, rows: list[Row], names: Names) -> Table:
    """The rows, put in order, as the declared table; what a row lacks is null."""
    if not rows:
        return empty_table(name)
    if "time_ns" in TABLES[name]:
        rows.sort(key=lambda r: r["time_ns"])
    else:
        rows.sort(key=lambda r: (r["start_ns"], -r["duration_ns"]))
    columns, masks = {}, {}
    for column, spec in TABLES[name].items():
        values: Sequence[Any] = [row.get(column) for row in rows]
        if spec.nullable and all(value is None for value in values):
            continue
        masks[column] = np.array([value is None for value in values])
        if spec.refers_to == "names":
            values = [None if v is None else names.id_of(v) for v in values]
        columns[column] = np.array([0 if v is None else v for v in values], spec.dtype)
    return table(name, columns, masks)
