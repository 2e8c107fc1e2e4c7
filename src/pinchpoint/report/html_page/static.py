"""The report as one self-contained HTML file: no network, no script, every name escaped."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pinchpoint.report.documents.clean import clean
from pinchpoint.report.documents.report import Report, ResultTable
from pinchpoint.report.html import template
from pinchpoint.report.pages.causal import path_sentence, queue_sentence
from pinchpoint.report.pages.report import finding_block
from pinchpoint.report.plain import middle_cut
from pinchpoint.report.quantity import in_unit, percent, time_unit
from pinchpoint.report.svg.causal import PATH_KINDS, ladder_svg, path_svg, queue_svg
from pinchpoint.report.svg.roofline import roofline_svg
from pinchpoint.report.tables.columns import numeric, shown_value
from pinchpoint.report.words import report as wording
from pinchpoint.report.words.closing import closing_sentence
from pinchpoint.report.words.mean import mean_sentences
from pinchpoint.report.words.roofline import above_the_ceiling, utilisation_sentences

if TYPE_CHECKING:
    from markupsafe import Markup

# ------------------------------------------------------------------------------------------------
# Tables of the document as the HTML page shows them: no empty columns, long names on demand.


FULL_NAME = "full_name"  # the column whose text opens below the short name in the first one
_LONGEST_TEXT = 64  # characters of a cell before it is cut: three lines of a column
_LONGEST_WORD = 34  # characters that stay on one line; longer texts may wrap


@dataclass(frozen=True)
class Head:
    """One column: its label, how it is set, and whether only the CSV has it."""

    label: str
    css: str  # number, word (never wraps) or text
    hidden: bool


@dataclass(frozen=True)
class Cell:
    """One value, as text and as it was before it was rounded and got its unit."""

    text: str
    value: float | int | str
    full: str = ""  # what the text is short for


@dataclass(frozen=True)
class ShownTable:
    """What the template draws."""

    id: str
    title: str
    note: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left_out: int


def shown_table(table: ResultTable) -> ShownTable:
    """The table without columns that say nothing."""
    kept = [
        i for i in range(len(table.columns)) if any(row[i] not in (None, "") for row in table.rows)
    ]
    of_numbers = numeric(table)
    full = next((i for i in kept if table.columns[i].id == FULL_NAME), None)
    heads = tuple(
        Head(
            table.columns[i].label,
            "number" if of_numbers[i] else _wrapping(table, i),
            hidden=i == full,
        )
        for i in kept
    )
    rows = tuple(
        tuple(_cell(table, row, i, full if i == kept[0] else None) for i in kept)
        for row in table.rows
    )
    return ShownTable(table.id, table.title, table.note, heads, rows, table.rows_left_out)


def _wrapping(table: ResultTable, position: int) -> str:
    longest = max((len(str(row[position] or "")) for row in table.rows), default=0)
    return "text" if longest > _LONGEST_WORD else "word"


def _cell(table: ResultTable, row: Sequence[Any], position: int, full: int | None) -> Cell:
    value = row[position]
    text = shown_value(table, row, position)
    name = text if full is None else str(row[full] or "")
    if len(text) > _LONGEST_TEXT:
        text = middle_cut(text, _LONGEST_TEXT)
    return Cell(text, "" if value is None else value, "" if name == text else name)


_GROUPS = (
    ("device", "the device works"),
    ("exposed", "a transfer that no work hides"),
    ("idle", "the device is idle"),
    ("host", "the host works"),
)


@dataclass(frozen=True)
class _Part:
    """One part of the step, ready to draw; ``left`` and ``width`` in percent of the step."""

    id: str
    label: str
    group: str
    time: str
    share: str
    left: float
    width: float


def render(report: Report) -> str:
    """The whole page as text."""
    return template("report.html").render(shown(clean(report)), interactive=False, marked=())


def shown(safe: Report) -> dict[str, object]:
    """What the template shows of a report that went through ``clean``."""
    return {
        "report": safe,
        "name": safe.source.path.replace("\\", "/").rstrip("/").rpartition("/")[2],
        "source": wording.source_line(safe),
        "about_memory": "",
        "cannot_conclude": safe.health.verdict == wording.CANNOT_CONCLUDE,
        "step": wording.step_sentence(safe),
        "spread": wording.spread_sentence(safe),
        "mean": tuple(mean_sentences(safe)),
        "breakdown_title": wording.breakdown_title(safe),
        "parts": _parts(safe),
        "shown_parts": len(_large_parts(safe)),
        "small_parts": _small_parts(safe),
        "device_work": wording.device_work(safe),
        "groups": [g for g in _GROUPS if any(p.group == g[0] for p in safe.breakdown)],
        "unit": _unit(safe),
        "findings": [
            finding_block(safe, finding, number, verbose=True)
            for number, finding in enumerate(safe.findings, 1)
        ],
        "order": wording.order(safe),
        "together": wording.together(safe),
        "closing": closing_sentence(safe),
        "not_checked": wording.not_checked_grouped(safe),
        "tables": [shown_table(table) for table in safe.tables.values()],
        "arithmetic": _arithmetic(safe),
        "roofline": _roofline(safe),
        **_causal(safe),
    }


def _causal(report: Report) -> dict[str, object]:
    """The ladder and the critical path, whose own renderer has escaped every name in them."""
    from markupsafe import Markup

    path, base = report.critical_path, wording.base_ns(report)
    return {
        "ladder": Markup(ladder_svg(base, report.ladder)) if report.ladder and base else None,
        "path": None if path is None else Markup(path_svg(path.stretches)),
        "queue": None if report.queue is None else Markup(queue_svg(report.queue)),
        "queue_sentence": queue_sentence(report.queue),
        "path_sentence": "" if path is None else path_sentence(path),
        "path_kinds": []
        if path is None
        else [PATH_KINDS[kind] for kind, ns in path.ns_per_step.items() if ns],
    }


def _unit(report: Report) -> str:
    return time_unit(sum(ns for _, ns in wording.all_parts(report)))


def _parts(report: Report) -> list[_Part]:
    parts = wording.all_parts(report)
    total, unit = sum(ns for _, ns in parts), _unit(report)
    drawn, before = [], 0
    for part, ns in parts:
        left, width = round(100 * before / total, 3), round(100 * ns / total, 3)
        time, share = in_unit(ns, unit), percent(ns / total)
        drawn.append(_Part(part.part, part.label, part.group, time, share, left, width))
        before += ns
    return drawn


def _large_parts(report: Report) -> list[int]:
    """Those that an overview has room for, largest first."""
    parts = [ns for _, ns in wording.all_parts(report)]
    least = wording.SMALL_PART_RATIO * sum(parts)
    return [ns for ns in parts if ns >= least][: wording.MOST_PARTS]


def _small_parts(report: Report) -> str:
    rest = [ns for _, ns in wording.all_parts(report)][len(_large_parts(report)) :]
    return in_unit(sum(rest), _unit(report))


def _arithmetic(report: Report) -> tuple[str, ...]:
    if report.roofline is None or report.roofline.utilisation is None:
        return ()
    return (
        *utilisation_sentences(report.roofline.utilisation),
        *above_the_ceiling(report.roofline),
    )


def _roofline(report: Report) -> "Markup | None":
    """The plot, whose own renderer has escaped every name in it."""
    if report.roofline is None or not any(p.bound for p in report.roofline.points):
        return None
    from markupsafe import Markup

    return Markup(roofline_svg(report.roofline))


def in_notebook(report: Report) -> str:
    """What bounds the step, what to change, where the time goes, in a few lines.

    Every name is escaped; no script, no style sheet, no network.
    """
    return template("notebook.html").render(shown(clean(report)))
