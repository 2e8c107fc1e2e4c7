"""Every rule on a recording in which there is nothing for it."""

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.registry import rules
from program import Program


@pytest.mark.parametrize("cause", rules())
def test_an_empty_recording_is_not_checked(outcome, cause):
    answer = outcome(cause, TraceBuilder().trace())
    assert answer.answer == "not checked"
    assert answer.record


@pytest.mark.parametrize("cause", rules())
def test_steps_that_keep_the_device_busy_have_no_cause(outcome, cause):
    p = Program()
    for _ in p.steps(6):
        with p.row("aten::add"):
            p.kernel("vectorized_elementwise_kernel", 2_000)
    assert outcome(cause, p.trace()).answer in ("clear", "not checked")
