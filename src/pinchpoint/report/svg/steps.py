"""The steps in a row: what each is made of, kinds of steps underlined, exceptional ones marked."""

from collections.abc import Mapping

from markupsafe import Markup

from pinchpoint.report.documents.report import ResultTable, StepsInfo
from pinchpoint.report.quantity import duration

MOST_BARS = 400  # of more steps, each bar is the longest of several
FEWEST = 2  # one step is no row
_HEIGHT = 44  # pixels: three lines of text, a strip and no chart
_MARK = 5  # height of what marks an exceptional step, above its bar, and a kind, below it
_GROUPS = ("device", "exposed", "idle", "host")  # from the bottom up, as the breakdown colours them
_KINDS = ("s0", "s1", "s2", "s3")  # classes of colours, by time of the kind


def steps_svg(steps: StepsInfo, table: ResultTable | None = None) -> Markup | None:
    """The strip, as recorded; None where there are too few complete steps, or none takes time.

    ``table`` is the one of steps, which says what each is made of; else a bar is of one colour.
    """
    lasting = steps.duration_ns
    if len(lasting) < FEWEST or max(lasting) <= 0:
        return None
    each = -(-len(lasting) // MOST_BARS)
    longest = max(lasting)
    exceptional = {one.step for one in steps.exceptional}
    parts = {} if table is None else _parts(table)
    bars = [
        _bar(steps, range(at, min(at + each, len(lasting))), longest, exceptional, parts)
        for at in range(0, len(lasting), each)
    ]
    label = f"{len(lasting)} complete steps as recorded, the longest {duration(longest)}"
    head = Markup(
        '<svg class="steps" height="{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}" style="max-width: {}rem">'
    ).format(_HEIGHT, len(bars) * 10, _HEIGHT, label, 2 * len(bars))
    inside = (bar.format(10 * at) for at, bar in enumerate(bars))
    return head + Markup("").join(inside) + Markup("</svg>")


def legend(steps: StepsInfo, table: ResultTable | None = None) -> tuple[tuple[str, str], ...]:
    """Class of a colour and what it is; empty where all bars are of one."""
    made_of = {} if table is None else _parts(table)
    groups = {group for step in made_of.values() for group, ns in step if ns}
    known = len(steps.kinds) > 1
    kinds = steps.kinds[: len(_KINDS)] if known else ()
    said = [
        (_KINDS[at], kind.label or f"about {duration(kind.mean_ns or kind.median_ns)}")
        for at, kind in enumerate(kinds)
    ]
    said = [(group, _WORDS[group]) for group in _GROUPS if group in groups] + said
    return tuple(said + ([("exception", "exceptional")] if steps.exceptional else []))


def scale(steps: StepsInfo) -> str:
    """What the height of the bars says: ``, 6.38 to 7.70 ms``."""
    if len(steps.duration_ns) < FEWEST:
        return ""
    least, most = duration(min(steps.duration_ns)), duration(max(steps.duration_ns))
    return f", {most} each" if least == most else f": the shortest {least}, the longest {most}"


def _parts(table: ResultTable) -> Mapping[int, tuple[tuple[str, int], ...]]:
    """Groups of each step by its number, and how long they take."""
    at = {column.id: i for i, column in enumerate(table.columns)}
    known = [group for group in _GROUPS if f"{group}_ns" in at]
    return {
        row[at["step"]]: tuple((group, row[at[f"{group}_ns"]] or 0) for group in known)
        for row in table.rows
    }


def _bar(
    steps: StepsInfo,
    rows: range,
    longest: int,
    exceptional: set[int],
    parts: Mapping[int, tuple[tuple[str, int], ...]],
) -> Markup:
    """The longest of these steps; the place to the left is filled in later."""
    row = max(rows, key=lambda at: steps.duration_ns[at])
    number = steps.numbers[row] if row < len(steps.numbers) else row + 1
    several = len(steps.kinds) > 1
    kind = steps.kind_of[row] if several and row < len(steps.kind_of) else None
    least = _HEIGHT - (_MARK if several else 0)
    ns_high = (least - _MARK - 1) / longest
    made_of = parts.get(number) or (("s0", steps.duration_ns[row]),)
    said, drawn, top = f"step {number}: {duration(steps.duration_ns[row])}", "", float(least)
    for css, ns in made_of:
        top -= ns * ns_high
        drawn += _rect(css, top, ns * ns_high) if ns else ""
        said += f", {_WORDS[css]} {duration(ns)}" if ns and css in _WORDS else ""
    if kind is not None:
        drawn += _rect(_KINDS[min(kind, len(_KINDS) - 1)], least + 2, _MARK - 2)
    if number in exceptional:
        drawn += _rect("exception", 0, _MARK - 2)
    return Markup("<g><title>{}</title>").format(said) + Markup(drawn + "</g>")


_WORDS = {
    "device": "device works",
    "exposed": "exposed transfers",
    "idle": "device idle",
    "host": "host",
}


def _rect(css: str, top: float, high: float) -> str:
    return f'<rect class="{css}" x="{{0}}" y="{top:.1f}" width="8" height="{max(high, 0.5):.1f}"/>'
