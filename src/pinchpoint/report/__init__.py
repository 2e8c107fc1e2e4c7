"""The one document, and one renderer a format.

Names are imported when first used: what draws needs nothing of what diagnoses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pinchpoint.report.assemble.report import diagnose as diagnose
    from pinchpoint.report.documents.report import Report as Report
    from pinchpoint.report.documents.report import decode as decode
    from pinchpoint.report.documents.report import encode as encode

_HOME = {
    "Report": "pinchpoint.report.documents.report",
    "decode": "pinchpoint.report.documents.report",
    "diagnose": "pinchpoint.report.assemble.report",
    "encode": "pinchpoint.report.documents.report",
}

__all__ = ["Report", "decode", "diagnose", "encode"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pinchpoint.report' has no attribute {name!r}")
    # A document knows no page. Whoever gets one from here can look at it in a notebook.
    import_module(_HOME["Report"]).Report.in_notebook = _in_notebook
    return getattr(import_module(_HOME[name]), name)


def _in_notebook(report: "Report") -> str:
    from pinchpoint.report.html_page.static import in_notebook

    return in_notebook(report)
