"""What one rank of several cannot tell."""

import pytest

from program import Program


@pytest.mark.parametrize("cause", ["straggler-rank", "rank0-stall"])
def test_one_rank_cannot_tell_who_is_late(outcome, cause):
    p = Program()
    for _ in p.steps(6):
        p.collective(5_000)
    answer = outcome(cause, p.trace())
    assert answer.answer == "not checked"
    assert "pinchpoint ranks" in answer.record


@pytest.mark.parametrize("cause", ["straggler-rank", "rank0-stall"])
def test_alone_nobody_is_late(outcome, cause):
    p = Program()
    for _ in p.steps(6):
        p.kernel("work", 100)
    assert outcome(cause, p.trace()).answer == "clear"
