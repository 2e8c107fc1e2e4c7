"""A module that is called with the same input in every step."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_values import RunValues, SameCalls

MS = 1_000_000
PLACE = ("serve.py", 15, "context")


def refining(again=()):
    """Steps of 10 ms of a device that has no rest: 6 of them in the encoder."""
    b = TraceBuilder()
    for step in range(6):
        at = step * 10 * MS
        b.step(step, at, 10 * MS)
        b.python("nn.Module: TextEncoder_0", at, 2 * MS)
        b.python("nn.Module: Layer_0", at + 1, MS)
        b.op("aten::mm", at + 2, MS // 2)
        b.launch(at + 3, 100_000, "gemm", at + MS, 6 * MS - 1_000)
        b.python("nn.Module: Denoiser_0", at + 3 * MS, 2 * MS)
        b.op("aten::mm", at + 3 * MS + 1, MS)
        b.launch(at + 3 * MS + 2, 100_000, "gemm", at + 7 * MS, 4 * MS - 1_000)
    values = RunValues(30, 2, True, (), (), 0, tuple(again))
    return replace(b.trace(), run=RunFacts(values=values))


def test_what_the_same_input_costs_can_be_kept(outcome):
    calls = [SameCalls("Layer", PLACE, 3, 1), SameCalls("TextEncoder", PLACE, 3, 1)]
    (found,) = outcome("same-input-again", refining(calls)).findings
    assert found.summary.startswith(
        "TextEncoder is called 1 × a step, and 2 of 3 calls that were watched repeat an input:"
        " 6.00 ms of the device's time"
    )
    assert str(found.location) == "context (serve.py:15)"
    device, host = found.changes
    assert device.factor == host.factor == pytest.approx(1 / 3)
    assert len(device.device_ops) == len(found.at_best[0].device_ops) > 0
    assert found.cost_ns_per_step == 6 * MS - 1_000


def test_without_calls_that_came_again_nothing_is_found(outcome):
    assert outcome("same-input-again", refining()).findings == ()
