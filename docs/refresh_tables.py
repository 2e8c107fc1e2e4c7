"""Writes docs/reference/tables.md from the data dictionary; a test compares."""

from pathlib import Path

from pinchpoint.trace import TABLES, Column, kinds

PAGE = Path(__file__).parent / "reference/tables.md"

_HEAD = """\
# Tables

Every importer fills these tables. `pinchpoint sql FILE "SELECT …"` queries them, and
`pinchpoint export FILE --to parquet -o FOLDER` writes them. This page is written by
`docs/refresh_tables.py` from `trace/tables.py`.

Times are nanoseconds since the beginning of the recording. Unknown is NULL. In SQL and Parquet each
table also has `row`, the position that `parent`, `api_call` and `host_op` refer to; names columns
are text, and kinds are the words below. SQL has two more tables: `threads` (thread, process, id,
label) and `names` (id, text).

```sql
-- device time by operator that launched it
SELECT h.name, count(*) AS kernels, sum(d.duration_ns) AS ns
FROM device_ops d JOIN host_ops h ON h.row = d.host_op
GROUP BY ALL ORDER BY ns DESC LIMIT 10
```
"""


def text() -> str:
    """The page."""
    parts = [_HEAD]
    for name, columns in TABLES.items():
        parts.append(
            f"\n## {name}\n\n| column | type | unit | null | meaning |\n|---|---|---|---|---|\n"
        )
        parts += [_row(column, spec) for column, spec in columns.items()]
    parts.append("\n## Kinds\n")
    for kind in (kinds.HostKind, kinds.ApiKind, kinds.DeviceKind, kinds.MemoryKind, kinds.FlowKind):
        words = ", ".join(f"`{member.name.lower()}`" for member in kind)
        parts.append(f"\n- {kind.__name__}: {words}")
    return "".join(parts) + "\n"


def _row(name: str, column: Column) -> str:
    kind = "text" if column.refers_to == "names" else column.dtype
    null = "yes" if column.nullable else ""
    return f"| `{name}` | {kind} | {column.unit} | {null} | {column.meaning} |\n"


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
