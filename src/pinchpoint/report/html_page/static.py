"""The report as one self-contained HTML file: no network, no script, every name escaped."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pinchpoint.frozen import dataclass
from pinchpoint.report.documents.clean import clean
from pinchpoint.report.documents.clock import as_recorded
from pinchpoint.report.documents.report import Report, ResultTable
from pinchpoint.report.html import template
from pinchpoint.report.html_page.clocks import clocks
from pinchpoint.report.pages.causal import path_sentence, queue_sentence
from pinchpoint.report.pages.report import finding_block
from pinchpoint.report.plain import middle_cut
from pinchpoint.report.svg.causal import PATH_KINDS, queue_svg
from pinchpoint.report.svg.roofline import roofline_svg
from pinchpoint.report.svg.steps import legend, scale, steps_svg
from pinchpoint.report.tables.columns import FULL_NAME, numeric, shown_value, titled
from pinchpoint.report.words import report as wording
from pinchpoint.report.words import steps as steps_words
from pinchpoint.report.words.roofline import (
    above_the_ceiling,
    utilisation_line,
    utilisation_sentences,
)

if TYPE_CHECKING:
    from markupsafe import Markup

# ------------------------------------------------------------------------------------------------
# Tables of the document as the HTML page shows them: no empty columns, long names on demand.


_LONGEST_TEXT = 64  # characters of a cell before it is cut: three lines of a column
_LONGEST_WORD = 34  # characters that stay on one line; longer texts may wrap


@dataclass(frozen=True)
class Head:
    """One column: its label, how it is set, and whether only the CSV has it."""

    label: str
    unit: str  # of its values in the CSV
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
            table.columns[i].unit,
            "number" if of_numbers[i] else _wrapping(table, i),
            hidden=i == full,
        )
        for i in kept
    )
    rows = tuple(
        tuple(_cell(table, row, i, full if i == kept[0] else None) for i in kept)
        for row in table.rows
    )
    return ShownTable(table.id, titled(table), table.note, heads, rows, table.rows_left_out)


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
    ("outside", "not in the recorded steps"),
)


_GROUPS_OF_A_RUN = (("host", "it works"), ("idle", "it waits, or has no core"))


def render(report: Report) -> str:
    """The whole page as text."""
    return template("report.html").render(shown(clean(report)), interactive=False, marked=())


def shown(safe: Report) -> dict[str, object]:
    """What the template shows of a report that went through ``clean``."""
    on = clocks(safe)
    return {
        "report": safe,
        "name": safe.source.path.replace("\\", "/").rstrip("/").rpartition("/")[2],
        "source": wording.source_line(safe),
        "about_memory": "",
        "of_job": None,
        "cannot_conclude": safe.health.verdict == wording.CANNOT_CONCLUDE,
        "utilisation": utilisation_line(safe.roofline.utilisation) if safe.roofline else None,
        "to_fill_in": wording.to_fill_in(safe),
        "spread": steps_words.spread_sentence(safe),
        "serving": (steps_words.serving_sentence(safe), steps_words.kv_cache_sentence(safe)),
        "clocks": on,
        "switch": [(clock.id, clock.label) for clock in on],
        "steps_strip": steps_svg(safe.steps, safe.tables.get("steps")),
        "steps_legend": legend(safe.steps, safe.tables.get("steps")),
        "steps_scale": scale(safe.steps),
        "first_label": _first_label(safe),
        "in_time": _in_time(safe),
        "groups": [g for g in _groups(safe) if any(p.group == g[0] for p in safe.breakdown)],
        "parts": on[0].parts,
        "unit": on[0].unit,
        "closing": on[0].closing,
        "findings": [
            finding_block(safe, finding, number, verbose=True)
            for number, finding in enumerate(safe.findings, 1)
        ],
        "not_checked": wording.not_checked_grouped(safe),
        "on_clocks": _on_clocks(safe),
        "arithmetic": _arithmetic(safe),
        "roofline": _roofline(safe),
        **_causal(safe),
    }


def _on_clocks(safe: Report) -> dict[str, list[tuple[str, ShownTable]]]:
    """Of each table by its id: on which clocks, empty for all, and what it says there."""
    other = as_recorded(safe).tables
    return {
        id_: [("", shown_table(table))]
        if other[id_] == table
        else [("unprofiled", shown_table(table)), ("recorded", shown_table(other[id_]))]
        for id_, table in safe.tables.items()
    }


def _groups(report: Report) -> tuple[tuple[str, str], ...]:
    return _GROUPS_OF_A_RUN if _is_of_a_run(report) else _GROUPS


def _is_of_a_run(report: Report) -> bool:
    """Whether nothing was recorded but looks at the whole run."""
    return report.run is not None and report.run.alone


def _in_time(report: Report) -> bool:
    """Whether findings are about the time of what is judged."""
    rungs = report.fix_ladder.rungs if report.fix_ladder else ()
    return _is_of_a_run(report) or any(r.kind == "finding" for r in rungs)


def _first_label(report: Report) -> str:
    """What stands before the first finding: a bound is a place to look at, and no promise."""
    if _is_of_a_run(report):
        return "Look at this first"
    return "Change this first" if _in_time(report) else "Found, not about the step's time:"


def _causal(report: Report) -> dict[str, object]:
    """The ladder and the critical path, whose own renderer has escaped every name in them."""
    from markupsafe import Markup

    path, base = report.critical_path, steps_words.base_ns(report)
    return {
        "ladder": bool(report.ladder and base),
        "path": path is not None,
        "queue": None if report.queue is None else Markup(queue_svg(report.queue)),
        "queue_sentence": queue_sentence(report.queue),
        "path_sentence": "" if path is None else path_sentence(path),
        "path_kinds": []
        if path is None
        else [PATH_KINDS[kind] for kind, ns in path.ns_per_step.items() if ns],
    }


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
