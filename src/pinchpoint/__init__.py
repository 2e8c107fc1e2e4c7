"""Pinchpoint: why a training or inference step is slow, and what fixing it would give.

>>> import pinchpoint as pp
>>> report = pp.diagnose("train.json.gz")

Names are imported when first used, so ``import pinchpoint`` stays cheap. Nothing that analyses
imports torch or jax.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from pinchpoint.analysis.replay import changes
    from pinchpoint.analysis.replay.predict import what_if as what_if
    from pinchpoint.api import causal as causal
    from pinchpoint.api import compare as compare
    from pinchpoint.api import diagnose as diagnose
    from pinchpoint.api import diagnose_ranks as diagnose_ranks
    from pinchpoint.api import memory as memory
    from pinchpoint.api import report as report
    from pinchpoint.bench.micro.time_function import time as time
    from pinchpoint.capture.api import capture as capture
    from pinchpoint.capture.api import watch as watch
    from pinchpoint.errors import PinchpointError as PinchpointError
    from pinchpoint.export.spans import log_spans as log_spans
    from pinchpoint.export.trackers import log_to as log_to
    from pinchpoint.importers import load as load
    from pinchpoint.inside import step as step
    from pinchpoint.inside import step_done as step_done
    from pinchpoint.report import Report as Report
    from pinchpoint.trace import Trace as Trace

_HOME = {
    "PinchpointError": "pinchpoint.errors",
    "Report": "pinchpoint.report",
    "Trace": "pinchpoint.trace",
    "capture": "pinchpoint.capture.api",
    "causal": "pinchpoint.api",
    "changes": "pinchpoint.analysis.replay",
    "compare": "pinchpoint.api",
    "diagnose": "pinchpoint.api",
    "diagnose_ranks": "pinchpoint.api",
    "load": "pinchpoint.importers",
    "log_spans": "pinchpoint.export.spans",
    "log_to": "pinchpoint.export.trackers",
    "memory": "pinchpoint.api",
    "report": "pinchpoint.api",
    "step": "pinchpoint.inside",
    "step_done": "pinchpoint.inside",
    "time": "pinchpoint.bench.micro.time_function",
    "watch": "pinchpoint.capture.api",
    "what_if": "pinchpoint.analysis.replay.predict",
}

__all__ = [
    "PinchpointError",
    "Report",
    "Trace",
    "capture",
    "causal",
    "changes",
    "compare",
    "diagnose",
    "diagnose_ranks",
    "load",
    "log_spans",
    "log_to",
    "memory",
    "report",
    "step",
    "step_done",
    "time",
    "watch",
    "what_if",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name == "__version__":
        return _version()
    raise AttributeError(f"module 'pinchpoint' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext pinchpoint`` in a notebook makes ``%%pinchpoint`` known."""
    import_module("pinchpoint.cli.notebook").load(shell)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pinchpoint")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"
