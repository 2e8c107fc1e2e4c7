"""What of a finding's cost its fix cannot win."""

import numpy as np
import pytest

from pinchpoint.analysis.replay import ScaleDeviceOps, ScaleHostSpans
from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.diagnosis.engine import Ranked
from pinchpoint.diagnosis.finding import Found
from pinchpoint.report.assemble.findings import finding_item

MS = 1_000_000
ROWS = np.arange(3)
HOST, DEVICE = ScaleHostSpans(ROWS, 0.0), ScaleDeviceOps(ROWS, 0.5)


def ranked(change, saving_ms, given=()):
    """A cause that takes 50 of 160 ms."""
    cause = Found(summary="slow", evidence=(), cost_ns_per_step=50 * MS, changes=(change,))
    after = Prediction((160 - saving_ms) * MS, (0, 160 * MS), 160 * MS)
    return Ranked("slow-transform", cause, after, saving_ms * MS, given)


@pytest.mark.parametrize(
    ("of", "hidden_ms"),
    [
        (ranked(HOST, 20), 30),
        (ranked(HOST, 45), None),
        (ranked(HOST, 0), None),
        (ranked(DEVICE, 20), None),  # what is left of it is work
        (ranked(HOST, 20, given=("sync-in-loop",)), None),
    ],
)
def test_host_time_that_wins_little_passes_while_the_device_works(of, hidden_ms):
    expected = None if hidden_ms is None else hidden_ms * MS
    assert finding_item(of).hidden_ns == expected
