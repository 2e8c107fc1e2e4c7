"""The map of late ranks as lines of text, readable at 10,000 ranks."""

from pinchpoint.report.quantity import quantity
from pinchpoint.report.ranks.document import HeatMap

_ROWS, _COLUMNS = 16, 56
_SHADES = " ░▒▓█"


def heat_lines(heat: HeatMap) -> tuple[str, tuple[str, ...]] | None:
    """A title and one line a block of ranks; None where nobody was late."""
    if len(heat.rows) < 2 or not heat.columns:
        return None
    rows, columns = _blocks(len(heat.rows), _ROWS), _blocks(len(heat.columns), _COLUMNS)
    cells = [[_worst(heat, a, b) for b in columns] for a in rows]
    top = max((v for row in cells for v in row if v is not None), default=0)
    if top <= 0:
        return None
    first, last = heat.columns[0][0], heat.columns[-1][1]
    title = f"Late, and waited for: ranks × steps {first} to {last}, darkest {quantity(top, 'ns')}"
    lines = []
    for block, row in zip(rows, cells, strict=True):
        low, high = heat.rows[block.start][0], heat.rows[block.stop - 1][1]
        label = f"{low}" if low == high else f"{low} to {high}"
        lines.append(f"  {label:>14}  |" + "".join(_shade(v, top) for v in row) + "|")
    return title, tuple(lines)


def _blocks(count: int, most: int) -> list[slice]:
    each = -(-count // most)
    return [slice(a, min(a + each, count)) for a in range(0, count, each)]


def _worst(heat: HeatMap, rows: slice, columns: slice) -> int | None:
    known = [v for row in heat.excess_ns[rows] for v in row[columns] if v is not None]
    return max(known, default=None)


def _shade(value: int | None, top: int) -> str:
    if value is None:
        return "?"
    return _SHADES[round((len(_SHADES) - 1) * max(value, 0) / top)]
