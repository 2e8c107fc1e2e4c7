"""The report as one self-contained HTML file: no network, no script, every name escaped."""

from typing import TYPE_CHECKING

from pinchpoint.report.documents.clean import clean
from pinchpoint.report.documents.report import Report
from pinchpoint.report.html import template
from pinchpoint.report.html_page.clocks import clocks
from pinchpoint.report.html_page.tables import shown_table
from pinchpoint.report.pages.report import finding_block
from pinchpoint.report.svg.roofline import roofline_svg
from pinchpoint.report.svg.steps import legend, steps_svg
from pinchpoint.report.words import report as wording
from pinchpoint.report.words.ladder import in_order
from pinchpoint.report.words.roofline import above_the_ceiling, utilisation_sentences

if TYPE_CHECKING:
    from markupsafe import Markup

_GROUPS = (
    ("device", "the device works"),
    ("exposed", "a transfer that no work hides"),
    ("idle", "the device is idle"),
    ("host", "the host works"),
)


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
        "cannot_conclude": safe.health.verdict == wording.CANNOT_CONCLUDE,
        "step": wording.step_sentence(safe),
        "spread": wording.spread_sentence(safe),
        "clocks": on,
        "steps_strip": steps_svg(safe.steps),
        "steps_legend": legend(safe.steps),
        "groups": [g for g in _GROUPS if any(p.group == g[0] for p in safe.breakdown)],
        "parts": on[0].parts,
        "unit": on[0].unit,
        "closing": on[0].closing,
        "findings": [
            finding_block(safe, finding, number, verbose=True)
            for number, finding in enumerate(in_order(safe), 1)
        ],
        "not_checked": wording.not_checked_grouped(safe),
        "tables": [shown_table(table) for table in safe.tables.values()],
        "arithmetic": _arithmetic(safe),
        "roofline": _roofline(safe),
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
