"""What changed, of a comparison that found B worse: the code first, then what the profiles add."""

from dataclasses import replace
from textwrap import shorten

from pinchpoint.bench.ab.changed_code import ChangedCode
from pinchpoint.bench.ab.result import MeasureResult
from pinchpoint.compare.measured import Grown, agrees, grown, steps_compared, within
from pinchpoint.compare.profiles import ProfileComparison
from pinchpoint.report.blocks import Text
from pinchpoint.report.pages import compare as compare_page
from pinchpoint.report.pages.result import ResultPage, better_or_worse, figure, worsening_range
from pinchpoint.report.quantity import duration, relative

_MOST = 3  # functions of a commit, and as many files in the command that shows them
_LINE = 72  # characters of a changed line


def with_change(
    page: ResultPage,
    found: ProfileComparison | None,
    step: MeasureResult | None,
    code: tuple[ChangedCode, ...] = (),
    base: str | None = None,
) -> ResultPage:
    """The page with what changed. ``found``: both profiles; ``step``: what the pairs measured of a
    step; ``code``: what differs from commit ``base``."""
    sure = None
    if found is not None and step is not None:
        sure = within(found, step) if agrees(found, step) else None
    elif found is not None:
        sure = found
    said = [_code(one) for one in grown(code, sure)[:_MOST]]
    if len(code) > _MOST:
        said.append(Text(f"and {len(code) - _MOST} more places that the commit changed"))
    tables, notes = page.tables, page.notes
    if sure is not None:
        change = compare_page.profiles_page(sure)
        said += change.reasons
        tables = (*tables, *change.tables)
        notes = (*notes, f"profiles: {change.headline}", *change.notes)
    elif found is not None and step is not None:
        said.append(Text(_cannot_tell(found, step)))
    files = list(dict.fromkeys(one.file for one in code))[:_MOST]
    look = f"git diff {base[:10]} -- {' '.join(files)}" if base and files else None
    return replace(
        page,
        reasons=(*page.reasons, *said),
        tables=tables,
        notes=notes,
        next_command=page.next_command or look,
    )


def _code(one: Grown) -> Text:
    code = one.code
    count = f"{code.lines} line{'s' if code.lines > 1 else ''}"
    said = f"the commit changed {count} here" if code.text else f"the commit removed {count} here"
    if code.text:
        said += f", first: {shorten(code.text, _LINE, placeholder=' …')}"
    if one.worth is not None:
        a, b = (duration(ns) for ns in (one.worth.a_ns, one.worth.b_ns))
        said += f" (without it a step were {a} shorter before, and {b} now, by the profiles)"
    return Text(said, label=code.at)


def _cannot_tell(found: ProfileComparison, step: MeasureResult) -> str:
    """Both figures, and which one to believe."""
    a, b = (figure(side, step.unit) for side in step.sides)
    sure = f" (95 %: {worsening_range(step.ci95_ratio)})" if step.ci95_ratio else ""
    measured = f"{step.label} {a} → {b}, {better_or_worse(step.estimate_ratio)}{sure}"
    both = steps_compared(found)
    if both is None:
        return f"The profiles have no step to compare; the pairs say: {measured}."
    profiled = " and ".join(map(duration, both))
    return (
        f"The profiles could not tell where the time went: one run each, with steps of {profiled}"
        f" ({relative(*both)}), where the pairs say: {measured}. Nothing is said from them."
    )
