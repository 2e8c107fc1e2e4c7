"""What exports of Nsight Systems hold: the tables that show one, and ``StringIds``."""

from collections.abc import Mapping

import numpy as np

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.files.database import Column, Database
from pinchpoint.trace import Names
from pinchpoint.trace.arrays import NameIds

_SUMS_OF_ASCEND = "sums of Ascend's profiler, without what they are of"
_DATABASE_OF_ASCEND = "give ascend_pytorch_profiler_*.db beside it"
# Other profilers' databases, by tables of theirs.
_OTHERS = (
    (
        ("StringTable", "CUPTI_ACTIVITY_KIND_DEVICE"),
        "a database of nvprof, which NVIDIA replaced by Nsight Systems",
        "record again: nsys profile --export sqlite COMMAND, or pinchpoint run COMMAND",
    ),
    (
        ("op_nodes", "kernel_iteration_stats"),
        "a database of DLProf, made from a recording of Nsight Systems",
        "give the export it was made from, nsys_profile.sqlite beside it",
    ),
    (
        ("ZISSUE", "Z_METADATA"),
        "a part of a recording of Apple's Instruments",
        "Pinchpoint reads none of it; record the program with: pinchpoint run python train.py",
    ),
    (("StepTraceTime",), _SUMS_OF_ASCEND, _DATABASE_OF_ASCEND),
    (("CommAnalyzerTime",), _SUMS_OF_ASCEND, _DATABASE_OF_ASCEND),
)
_SHOWN_TABLES = 3  # of dozens: enough to know whose database it is


def must_be_an_export(database: Database) -> None:
    """UnreadableFile, with the next step, for a database that nsys did not write."""
    tables = database.columns
    for signs, what, hint in _OTHERS:
        if all(sign in tables for sign in signs) and "StringIds" not in tables:
            raise UnreadableFile(f"{database.path}: {what}", hint=hint)
    nsys = any(t.startswith(("CUPTI_ACTIVITY_", "TARGET_INFO_")) for t in tables)
    if not nsys and not database.has("StringIds", "id", "value"):
        views = ": views and virtual tables are not read" if database.passed_over else ""
        shown = ", ".join(list(tables)[:_SHOWN_TABLES])
        of = f" of {shown}" if shown else ""
        raise UnreadableFile(
            f"{database.path}: a SQLite database{of}, but no export of Nsight Systems{views}",
            hint="give what nsys export --type sqlite REPORT.nsys-rep writes, or another recording:"
            " pinchpoint formats",
        )


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
