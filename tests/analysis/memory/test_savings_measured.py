"""A predicted saving against a second recording, made after the change."""

import pytest

from analysis.memory import recordings
from pinchpoint.analysis.memory.what_if import what_ifs


def test_checkpointing_lowers_the_peak_to_what_was_predicted():
    before, after = "twelve_layers", "twelve_layers_checkpointed"
    answers = what_ifs(recordings.history(before))
    predicted = next(a for a in answers if a.id.startswith("checkpoint"))
    measured = recordings.truth(after)["requested_peak"]
    saved = recordings.truth(before)["requested_peak"] - measured
    assert saved > 2.8 * (1 << 30)
    assert predicted.saved_bytes == pytest.approx(saved, rel=0.01)
