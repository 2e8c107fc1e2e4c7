"""What the step was predicted to be once some of a recording's findings are fixed."""

from collections.abc import Collection

from pinchpoint.analysis.replay.predict import Prediction
from pinchpoint.diagnosis.engine import after_fixes
from pinchpoint.diagnosis.windows import diagnose
from pinchpoint.trace import Trace


def predicted_without(trace: Trace, ids: Collection[str]) -> Prediction | None:
    """The replay of these findings' changes together; None where replay knows none of them."""
    fixed = [ranked for ranked in diagnose(trace).found if ranked.id in ids]
    if len(fixed) == 1:
        return fixed[0].predicted
    timed = [ranked.finding for ranked in fixed if ranked.finding.changes]
    return after_fixes(trace, timed) if timed else None
