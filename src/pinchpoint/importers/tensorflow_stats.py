"""``tensorflow_stats.pb`` of TensorBoard's profile plugin: operations with their sums, no times.

Field numbers are those of the published ``tf_stats.proto``. The table without idle time is read.
"""

from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.files.memory import TABLE_TIMES, must_fit
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.files.wire import BYTES, MalformedMessage, fields
from pinchpoint.importers.health import health_table
from pinchpoint.trace import Names, Source, SummaryTable, Trace

FORMAT = "TensorFlow stats"
FILES = (".tensorflow_stats.pb", "TensorBoard's profile plugin")
READS: tuple[str, ...] = ("sums",)
NOT_READ = "the table with idle time"

_WITHOUT_IDLE = 5  # field of TfStatsDatabase
_ROW = 1  # field of TfStatsTable
_TEXTS = {2: "on", 3: "type", 4: "operation", 17: "bound by"}  # fields of TfStatsRecord
_NUMBERS = {8: "self time (us)", 14: "GFLOP/s", 15: "GB/s"}  # doubles of the same
_RUNS = 5  # field of the same: occurrences
_COLUMNS = ("operation", "type", "on", "runs", "self time (us)", "GFLOP/s", "GB/s", "bound by")
_SIGN = 0x22  # first byte: the table with idle time, field 4
_SIDES = (b"\x12\x04Host", b"\x12\x06Device")  # field 2 of a row


def claims(path: Path, head: bytes) -> bool:
    """A message that begins with such a table, and rows of the host or a device in it."""
    return head[:1] == bytes([_SIGN]) and any(side in head for side in _SIDES)


def read(path: Path) -> Trace:
    """The rows, most self time first; UnreadableFile where there are none."""
    try:
        with unpacked(path) as plain:
            must_fit(path, plain.stat().st_size, TABLE_TIMES)
            content = memoryview(plain.read_bytes())
        rows = [
            _row(row.bytes)
            for table in fields(content)
            if (table.number, table.kind) == (_WITHOUT_IDLE, BYTES)
            for row in fields(table.bytes)
            if (row.number, row.kind) == (_ROW, BYTES)
        ]
    except MalformedMessage as error:
        raise UnreadableFile(
            f"{path}: a damaged table of TensorBoard's profile plugin ({error})",
            hint="copy it again; or give the .xplane.pb that it was made from",
        ) from None
    if not rows:
        raise UnreadableFile(
            f"{path}: a table without rows", hint="give the .xplane.pb that it was made from"
        )
    rows.sort(key=lambda row: -float(row["self time (us)"] or 0))
    shown = tuple(tuple(row.get(column, "") for column in _COLUMNS) for row in rows)
    names = Names()
    return Trace(
        source=Source(str(path), FORMAT, path.stat().st_size, recorder="tensorflow"),
        summaries=(SummaryTable(_COLUMNS, shown),),
        health=health_table([], names),
        names=names.freeze(),
    )


def _row(message: memoryview) -> dict[str, str]:
    row = dict.fromkeys(_COLUMNS, "")
    for field in fields(message):
        if field.number in _TEXTS and field.kind == BYTES:
            row[_TEXTS[field.number]] = field.text
        elif field.number in _NUMBERS and field.real is not None:
            row[_NUMBERS[field.number]] = f"{field.real:.1f}"
        elif field.number == _RUNS:
            row["runs"] = str(field.integer)
    return row
