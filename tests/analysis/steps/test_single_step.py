"""Recordings in which nothing repeats, with one optimizer step at different places."""

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.steps.steps import steps

US = 1_000
KINDS = ("conv", "norm", "relu", "pool", "gemm", "loss", "gemm_backward", "pool_backward")


def recorded(*optimizer_after):
    """Eight different kernels, 100 µs apart, with optimizer steps after those of these numbers."""
    b = TraceBuilder()
    for i, kind in enumerate(KINDS):
        at = i * 100 * US
        b.op(f"aten::{kind}", at, 40 * US)
        b.launch(at + 10 * US, 5 * US, kind, at + 20 * US, 60 * US)
        if i in optimizer_after:
            b.annotation("Optimizer.step#SGD.step", at + 50 * US, 20 * US)
            b.launch(at + 55 * US, 5 * US, f"sgd {i}", at + 81 * US, 5 * US)
    return b.trace()


def test_a_recording_that_ends_with_its_only_optimizer_step_is_one_step():
    found = steps(recorded(7))
    assert (found.how, len(found), found.confidence) == ("inferred", 1, 0.5)
    assert not found.complete.any()
    assert (found.start_ns[0], found.end_ns[0]) == (0, 786 * US)


@pytest.mark.parametrize("places", [(), (3,), (2, 7)])
def test_other_recordings_without_repetition_have_no_steps(places):
    assert steps(recorded(*places)).how == "none"
