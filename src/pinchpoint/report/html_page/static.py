"""The report as one self-contained HTML file: no network, no script, every name escaped."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pinchpoint.report.documents.clean import clean
from pinchpoint.report.documents.report import Report
from pinchpoint.report.html import template
from pinchpoint.report.html_page.tables import shown_table
from pinchpoint.report.pages.causal import path_sentence
from pinchpoint.report.pages.report import finding_block
from pinchpoint.report.quantity import in_unit, percent, time_unit
from pinchpoint.report.svg.causal import PATH_KINDS, ladder_svg, path_svg
from pinchpoint.report.svg.roofline import roofline_svg
from pinchpoint.report.words import report as wording
from pinchpoint.report.words.closing import closing_sentence
from pinchpoint.report.words.mean import mean_sentences
from pinchpoint.report.words.roofline import above_the_ceiling, utilisation_sentences

if TYPE_CHECKING:
    from markupsafe import Markup

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
