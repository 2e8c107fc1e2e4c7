"""What changed, of a comparison that found B worse: the code first, then what the profiles add."""

from collections.abc import Sequence
from dataclasses import replace
from textwrap import shorten

import msgspec

from pinchpoint.bench.ab.changed_code import ChangedCode
from pinchpoint.bench.ab.costly_lines import CostlyLine, LineCosts
from pinchpoint.bench.ab.result import MeasureResult
from pinchpoint.bench.words import with_range
from pinchpoint.compare.measured import (
    Grown,
    agrees,
    grown,
    new_at_changed_code,
    steps_compared,
    within,
)
from pinchpoint.compare.profiles import CauseOfChange, ProfileComparison
from pinchpoint.report.blocks import Text
from pinchpoint.report.pages import compare as compare_page
from pinchpoint.report.pages.result import Place, ResultPage, figure
from pinchpoint.report.quantity import duration, percent, relative

_MOST = 3  # functions of a commit, and as many files in the command that shows them
_LINE = 72  # characters of a changed line
_BUSY = (
    "profiles: recorded while other programs used the CPUs, so that the tables of their times are"
    " left out here; change.md has them"
)
_PYTHON = ".py"
_NONE = 0.0005  # of a step; less is 0.0 %


def with_change(
    page: ResultPage,
    found: ProfileComparison | None,
    step: MeasureResult | None,
    code: tuple[ChangedCode, ...] = (),
    base: str | None = None,
    costs: LineCosts | None = None,
    *,
    busy: bool = False,
) -> ResultPage:
    """The page with what changed. ``found``: both profiles; ``step``: what the pairs measured of a
    step; ``code``: what differs from commit ``base``; ``costs``: what the
    changed lines took of a step.

    ``busy``: others took the CPUs. A few recorded steps of one run each tell no times of pieces
    then (an operation that nobody changed went from 2.4 to 0.5 ms at load 6 on 2 CPUs): causes that
    a recording shows by more than times are said, and no table.
    """
    costs = costs or LineCosts()
    costly, sure = costs.costly, None
    if found is not None and step is not None:
        sure = within(found, step) if agrees(found, step) else None
    elif found is not None:
        sure = found
    ordered = _ordered(grown(code, sure), costs)
    said = [_code(one, costs) for one in ordered[:_MOST]]
    if len(code) > _MOST:
        said.append(Text(f"and {len(code) - _MOST} more places that the commit changed"))
    tables, notes = page.tables, page.notes
    if sure is not None and busy:
        causes = tuple(c for c in sure.causes if c.rests_on != "piece")
        said += compare_page.profiles_page(msgspec.structs.replace(sure, causes=causes)).reasons
        notes = (*notes, _BUSY)
    elif sure is not None:
        change = compare_page.profiles_page(sure)
        said += change.reasons
        tables = (*tables, *change.tables)
        notes = (*notes, f"profiles: {change.headline}", *change.notes)
    elif found is not None and step is not None:
        said += [_new_here(cause, one) for cause, one in new_at_changed_code(found, code)]
        contradiction = _cannot_tell(found, step)
        if costly is None:
            said.append(Text(contradiction))
        else:  # where the time went is known without them
            notes = (*notes, contradiction)
    files = list(dict.fromkeys(one.code.file for one in ordered))[:_MOST]
    look = f"git diff {base[:10]} -- {' '.join(files)}" if base and files else None
    return replace(
        page,
        reasons=(*page.reasons, *said),
        tables=tables,
        notes=notes,
        next_command=page.next_command or look,
        place=_place(ordered[0].code, said[0], costly) if ordered else page.place,
    )


def _ordered(code: Sequence[Grown], costs: LineCosts) -> list[Grown]:
    """The line that costs first, then what has more of a step than before, by the clock and by the
    profiles; then code that ran or may have, and last what Python does not run."""
    return sorted(
        code,
        key=lambda one: (
            costs.costly is None or one.code != costs.costly.code,
            -costs.parts.get(one.code, 0.0),
            one.worth is None,
            not one.code.file.endswith(_PYTHON),
        ),
    )


def _place(code: ChangedCode, said: Text, costly: CostlyLine | None) -> Place:
    line = costly.line if costly is not None and costly.code == code else code.line
    return Place(code.file, line, code.function, said.text)


def _code(one: Grown, costs: LineCosts) -> Text:
    code, costly, part = one.code, costs.costly, costs.parts.get(one.code)
    if costly is not None and costly.code == code:
        return Text(_costs(costly), label=code.at_line(costly.line))
    count = f"{code.lines} lines" if code.lines > 1 else "this line"
    said = f"the commit changed {count}" if code.text else f"the commit removed {count}"
    if code.text:
        first = ", the first of them" if code.lines > 1 else ""
        said += f"{first}: {shorten(code.text, _LINE, placeholder=' …')}"
    if part:
        what = "they have" if code.lines > 1 else "it has"
        said += f" ({what} {percent(part)} % of a step more than what stood here before, timed in"
        said += " one more run)"
    elif one.worth is not None:
        a, b = (duration(ns) for ns in (one.worth.a_ns, one.worth.b_ns))
        said += f" (by the profiles this function costs {b} of a step, {a} before)"
    return Text(said, label=code.at)


def _costs(costly: CostlyLine) -> str:
    """What the line has of a step, and what it replaced had."""
    before = f"{percent(costly.a_ratio)} % before" if costly.a_ratio >= _NONE else "nothing before"
    said = f"this line takes {percent(costly.b_ratio)} % of a step, {before}:"
    said += f" {shorten(costly.text, _LINE, placeholder=' …')}"
    lines = costly.code.lines
    rest = f"; the commit changed {lines} lines of this function" if lines > 1 else ""
    return f"{said} (timed in {costly.steps:,} steps of one more run{rest})"


def _new_here(cause: CauseOfChange, code: ChangedCode) -> Text:
    said = f"{cause.summary}; the profile of the base does not show it, and the commit changed"
    return Text(f"{said} {code.at}", label=cause.id)


def _cannot_tell(found: ProfileComparison, step: MeasureResult) -> str:
    """Both figures, and which one to believe."""
    a, b = (figure(side, step.unit) for side in step.sides)
    how = with_range(step.estimate_ratio, step.ci95_ratio, step.better)
    measured = f"{step.label} {a} → {b}, {how}"
    both = steps_compared(found)
    if both is None:
        return f"The profiles have no step to compare; the pairs measured: {measured}."
    profiled = " → ".join(map(duration, both))
    return (
        f"Times of the two profiles are not relied on: these are one short run each, whose steps"
        f" went {profiled} ({relative(*both)}), and the pairs of runs measured: {measured}."
    )
