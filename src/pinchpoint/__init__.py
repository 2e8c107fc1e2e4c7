"""Pinchpoint: why a training or inference step is slow, and what fixing it would give.

>>> import pinchpoint as pp
>>> trace = pp.load("train.json.gz")
>>> report = pp.diagnose(trace)

Names are imported when first used, so ``import pinchpoint`` stays cheap. Nothing that analyses
imports torch or jax.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pinchpoint.errors import PinchpointError as PinchpointError
    from pinchpoint.importers import load as load
    from pinchpoint.report import Report as Report
    from pinchpoint.trace import Trace as Trace

try:
    __version__ = version("pinchpoint")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "unknown"

_HOME = {
    "PinchpointError": "pinchpoint.errors",
    "Report": "pinchpoint.report",
    "Trace": "pinchpoint.trace",
    "load": "pinchpoint.importers",
}

__all__ = ["PinchpointError", "Report", "Trace", "load"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'pinchpoint' has no attribute {name!r}")
