"""The steps in a row: one bar a step, kinds of steps coloured, exceptional ones marked."""

from markupsafe import Markup

from pinchpoint.report.documents.report import StepsInfo
from pinchpoint.report.quantity import duration

MOST_BARS = 400  # of more steps, each bar is the longest of several
FEWEST = 2  # one step is no row
_HEIGHT = 44  # pixels: three lines of text, a strip and no chart
_MARK = 5  # height of what marks an exceptional step, above its bar
_KINDS = ("s0", "s1", "s2", "s3")  # classes of colours, by time of the kind


def steps_svg(steps: StepsInfo) -> Markup | None:
    """The strip, as recorded; None where there are too few complete steps."""
    lasting = steps.duration_ns
    if len(lasting) < FEWEST:
        return None
    each = -(-len(lasting) // MOST_BARS)
    longest = max(lasting)
    exceptional = {one.step for one in steps.exceptional}
    bars = [
        _bar(steps, range(at, min(at + each, len(lasting))), longest, exceptional)
        for at in range(0, len(lasting), each)
    ]
    label = f"{len(lasting)} complete steps as recorded, the longest {duration(longest)}"
    head = Markup(
        '<svg class="steps" height="{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}" style="max-width: {}rem">'
    ).format(_HEIGHT, len(bars) * 10, _HEIGHT, label, 2 * len(bars))
    inside = (bar.format(10 * at) for at, bar in enumerate(bars))
    return head + Markup("").join(inside) + Markup("</svg>")


def legend(steps: StepsInfo) -> tuple[tuple[str, str], ...]:
    """Class of a colour and what it is; empty where all steps are alike."""
    known = len(steps.kinds) > 1
    kinds = steps.kinds[: len(_KINDS)] if known else ()
    said = [
        (_KINDS[at], kind.label or f"about {duration(kind.mean_ns or kind.median_ns)}")
        for at, kind in enumerate(kinds)
    ]
    return tuple(said + ([("exception", "exceptional")] if steps.exceptional else []))


def scale(steps: StepsInfo) -> str:
    """What the height of the bars says: ``, 6.38 to 7.70 ms``."""
    if len(steps.duration_ns) < FEWEST:
        return ""
    least, most = duration(min(steps.duration_ns)), duration(max(steps.duration_ns))
    return f", {most} each" if least == most else f": the shortest {least}, the longest {most}"


def _bar(steps: StepsInfo, rows: range, longest: int, exceptional: set[int]) -> Markup:
    """The longest of these steps; the place to the left is filled in later."""
    row = max(rows, key=lambda at: steps.duration_ns[at])
    number = steps.numbers[row] if row < len(steps.numbers) else row + 1
    kind = steps.kind_of[row] if row < len(steps.kind_of) else None
    css = "exception" if number in exceptional else _KINDS[min(kind or 0, len(_KINDS) - 1)]
    high = max((_HEIGHT - _MARK - 1) * steps.duration_ns[row] / longest, 1.0)
    mark = f'<rect class="exception" x="{{0}}" y="0" width="8" height="{_MARK - 2}"/>'
    title = f"step {number}: {duration(steps.duration_ns[row])}"
    return Markup(
        f'<rect class="{css}" x="{{0}}" y="{_HEIGHT - high:.1f}" width="8" height="{high:.1f}">'
        f"<title>{title}</title></rect>" + (mark if number in exceptional else "")
    )
