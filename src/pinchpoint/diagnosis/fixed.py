"""What the step was predicted to be once some of a recording's findings are fixed."""

from collections.abc import Collection

from pinchpoint.analysis.mean.what_if import what_if_mean
from pinchpoint.analysis.replay.predict import Prediction
from pinchpoint.diagnosis.windows import diagnose
from pinchpoint.trace import Trace


def predicted_without(trace: Trace, ids: Collection[str]) -> Prediction | None:
    """The replay of these findings' changes together; None where replay knows none of them."""
    fixed = [ranked for ranked in diagnose(trace).found if ranked.id in ids]
    if len(fixed) == 1:
        return fixed[0].predicted
    changes = [change for ranked in fixed for change in ranked.finding.changes]
    return what_if_mean(trace, changes) if changes else None
