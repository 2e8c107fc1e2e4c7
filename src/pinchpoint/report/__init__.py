"""The one document, and one renderer a format.

Names are imported when first used: what draws needs nothing of what diagnoses. The package can be
called, because ``pinchpoint.report`` is also the name of a function (see
:func:`pinchpoint.api.report`), and importing a module of a package binds its name.
"""

import sys
from importlib import import_module
from types import ModuleType
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
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'pinchpoint.report' has no attribute {name!r}")


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return import_module("pinchpoint.api").report(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
