"""All ways, the one that fits first."""

from pinchpoint.diagnosis.evidence.slow_ways.arrays import ARRAYS
from pinchpoint.diagnosis.evidence.slow_ways.drawing import DRAWING
from pinchpoint.diagnosis.evidence.slow_ways.python import PYTHON
from pinchpoint.diagnosis.evidence.slow_ways.science import SCIENCE
from pinchpoint.diagnosis.evidence.slow_ways.way import Said, Way
from pinchpoint.trace.run_samples import Called

WAYS = (*DRAWING, *ARRAYS, *SCIENCE, *PYTHON)


def way_of(call: Called) -> tuple[Way, Said] | None:
    """The slow way that a call is; None where nothing is known of it, as of most."""
    found = ((way, way.said(call)) for way in WAYS)
    return next(((way, said) for way, said in found if said is not None), None)
