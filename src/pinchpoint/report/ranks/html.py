"""The job as one self-contained page: no network, no script, every name escaped."""

from functools import cache
from typing import TYPE_CHECKING, Any

from pinchpoint.report.clean import cleaned
from pinchpoint.report.document import ResultTable
from pinchpoint.report.quantity import duration, in_unit, percent, quantity, time_unit
from pinchpoint.report.ranks import words
from pinchpoint.report.ranks.document import JobFindingItem, RanksReport
from pinchpoint.report.ranks.svg import heat_svg, timeline_svg

if TYPE_CHECKING:
    from jinja2 import Template

_MOST_RANK_ROWS = 500  # of the table of all ranks; the JSON document has every one


def render_page(report: RanksReport) -> str:
    """The page as text."""
    safe = cleaned(report)
    return _template("ranks.html").render(
        _shown(safe),
        title=", ".join(words.source_line(safe)[:1]),
        source=words.source_line(safe),
        said=(),
        sentences=_sentences(safe),
        doubts=words.doubts(safe),
    )


def render_view(report: RanksReport) -> str:
    """The job as a part of another page, whose style includes ``ranks_shapes.css``."""
    safe = cleaned(report)
    said = [" · ".join(words.source_line(safe)), *_sentences(safe), *words.doubts(safe)]
    return _template("ranks_view.html").render(_shown(safe), said=said)


def _sentences(report: RanksReport) -> list[str]:
    return [s for s in (words.step_sentence(report), words.clock_sentence(report)) if s]


def _shown(safe: RanksReport) -> dict[str, object]:
    return {
        "verdict": safe.verdict,
        "parts": _parts(safe),
        "findings": [_finding(safe, f) for f in safe.findings],
        "closing": words.closing(safe),
        "stragglers": [words.straggler_sentence(s) for s in safe.stragglers],
        "incidents": [words.incident_sentence(i) for i in safe.incidents],
        "mismatches": [words.mismatch_sentence(m) for m in safe.mismatches],
        "heat": None if safe.heat_map is None else heat_svg(safe.heat_map),
        "timeline": None if safe.timeline is None else timeline_svg(safe.timeline),
        "timeline_step": None if safe.timeline is None else safe.timeline.step,
        "scaling": words.scaling_sentence(safe),
        "what_if": [(w.label, duration(w.step_ns)) for w in safe.what_if],
        "buckets": [words.bucket_sentence(b) for b in safe.buckets],
        "tables": [_table(t) for t in safe.tables.values()],
        "not_checked": safe.not_checked,
        "crashed": safe.crashed,
    }


def _parts(report: RanksReport) -> list[dict[str, object]]:
    parts = words.top_parts(report)
    total = sum(ns for *_, ns in parts) or 1
    unit = time_unit(total)
    return [
        {
            "label": label,
            "group": "rest" if part is None else _colour(part.part, part.group),
            "time": f"{in_unit(ns, unit)} {unit}",
            "share": percent(ns / total),
            "width": round(100 * ns / total, 2),
        }
        for label, part, ns in parts
    ]


def _colour(part: str, group: str) -> str:
    return {"waiting-for-ranks": "waiting", "exposed-transfer": "transfer"}.get(part, group)


def _finding(report: RanksReport, finding: JobFindingItem) -> dict[str, object]:
    return {
        "id": finding.id,
        "gain": words.gain(report, finding),
        "summary": finding.summary,
        "on": words.shown_on(finding),
        "evidence": [(e.what, quantity(e.value, e.unit)) for e in finding.evidence],
        "fix": finding.fix,
        "hint": finding.hint,
        "confirm": finding.confirm,
    }


def _table(table: ResultTable) -> dict[str, object]:
    shown = table.rows[:_MOST_RANK_ROWS]
    return {
        "title": table.title,
        "columns": [(c.label, bool(c.unit)) for c in table.columns],
        "rows": [
            [
                (_cell(column.id, value, column.unit), bool(column.unit))
                for value, column in zip(row, table.columns, strict=True)
            ]
            for row in shown
        ],
        "left_out": table.rows_left_out + len(table.rows) - len(shown),
        "note": table.note,
        "open": table.id != "ranks",
    }


def _cell(column: str, value: Any, unit: str) -> str:
    if column == "rank":  # a name, not a number of things
        return str(value)
    return words.file_name(str(value)) if column == "path" else words.cell(value, unit)


@cache
def _template(name: str) -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("pinchpoint.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)
