"""``StringIds``: names by their number in the file."""

from collections.abc import Mapping

import numpy as np

from pinchpoint.importers.nsys.database import Column, Database
from pinchpoint.trace import Names
from pinchpoint.trace.arrays import NameIds

Strings = Mapping[int, str]

# Every column that holds a position in StringIds and that this importer reads.
_REFERENCES = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", ("demangledName", "shortName")),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", ("nameId",)),
    ("NVTX_EVENTS", ("textId", "jsonTextId")),
    ("OSRT_API", ("nameId",)),
    ("ThreadNames", ("nameId",)),
    ("SAMPLING_CALLCHAINS", ("symbol",)),
    ("PROFILER_OVERHEAD", ("nameId",)),
)


def read_strings(database: Database) -> dict[int, str]:
    """The strings that the tables we read point to: a long recording holds millions more."""
    wanted: set[int] = set()
    for table, columns in _REFERENCES:
        for column in database.integers(table, columns).values():
            wanted.update(np.unique(column.values[~column.missing]).tolist())
    pairs = database.rows("StringIds", ("id", "value"))
    return {i: text for i, text in pairs if i in wanted and isinstance(text, str)}


def interned(column: Column, strings: Strings, names: Names, unknown: str) -> NameIds:
    """Positions in ``names`` of what the column points to; ``unknown`` where it points nowhere."""
    distinct, inverse = np.unique(column.values, return_inverse=True)
    texts = (strings.get(i) or unknown for i in distinct.tolist())
    return np.array(names.ids_of(texts), np.int32).reshape(-1)[inverse]
