"""The one document, and one renderer a format.

Names are imported when first used: what draws needs nothing of what diagnoses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pinchpoint.report.build import diagnose as diagnose
    from pinchpoint.report.document import Report as Report
    from pinchpoint.report.document import decode as decode
    from pinchpoint.report.document import encode as encode

_HOME = {
    "Report": "pinchpoint.report.document",
    "decode": "pinchpoint.report.document",
    "diagnose": "pinchpoint.report.build",
    "encode": "pinchpoint.report.document",
}

__all__ = ["Report", "decode", "diagnose", "encode"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'pinchpoint.report' has no attribute {name!r}")
