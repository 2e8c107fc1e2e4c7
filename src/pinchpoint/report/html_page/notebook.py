"""A report in a notebook: what bounds the step, what to change, where the time goes."""

from pinchpoint.report.documents.clean import clean
from pinchpoint.report.documents.report import Report
from pinchpoint.report.html import template
from pinchpoint.report.html_page.static import shown


def render(report: Report) -> str:
    """A few lines of HTML with every name escaped; no script, no style sheet, no network."""
    return template("notebook.html").render(shown(clean(report)))
