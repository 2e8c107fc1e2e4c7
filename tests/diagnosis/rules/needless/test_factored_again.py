"""Factorisations that fail and are tried again, found again in a recording."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_values import RunValues, VainOperations, VainWork

MS = 1_000_000
CHOLESKY = "aten::linalg_cholesky_ex"


def trying(kind="tries", *, times=2, of=3, device=True):
    """Steps of 10 ms with three factorisations of 3 ms, and 1 ms for something else."""
    b = TraceBuilder()
    for step in range(6):
        at = step * 10 * MS
        b.step(step, at, 10 * MS)
        took = MS if device else 3 * MS
        for number in range(3):
            start = at + number * took
            b.op(CHOLESKY, start, took, shapes="[[64, 64]]")
            if device:
                on_device = at + number * 3 * MS + 10_000
                b.launch(start + 1_000, 100_000, "potrf", on_device, 3 * MS - 20_000)
        b.op("aten::mm", at + 9 * MS, MS // 2, shapes="[[64, 64], [64, 64]]")
        if device:
            b.launch(at + 9 * MS + 1_000, 100_000, "gemm", at + 9 * MS + 100_000, MS // 2)
    operations = (VainOperations(CHOLESKY, ((64, 64),), of, ((0, of - 1),)),)
    place = (("gp.py", 30, "factor"),)
    note = VainWork(
        kind, place, operations, False, times, of, None, 1.0, 0.0, 1 - times / max(of, 1)
    )
    values = RunValues(30, 1, True, (), (), 0, work=(note,), operators=(CHOLESKY, "aten::mm"))
    return replace(b.trace(), run=RunFacts(values=values))


def test_what_fails_is_left_out(outcome):
    (found,) = outcome("factored-again", trying()).findings
    assert found.summary.startswith(
        "2 of 3 factorisations a step in factor (gp.py:30) fail and are tried again"
        " (aten::linalg_cholesky_ex): all of them take 8.94 ms of the device's time"
    )
    device, host = found.changes
    assert len(device.device_ops) == 15  # of the judged steps: the first has none before it
    assert (device.factor, host.factor) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert found.cost_ns_per_step == pytest.approx(8.94 * MS * 2 / 3, rel=1e-3)


def test_on_a_cpu_the_host_does_not_compute_them(outcome):
    (found,) = outcome("factored-again", trying(device=False)).findings
    (host,) = found.changes
    assert len(host.host_ops) == 15


@pytest.mark.parametrize("note", [{"kind": "unused"}, {"times": 0}, {"times": 3}])
def test_what_was_not_seen_to_fail_and_succeed(outcome, note):
    assert outcome("factored-again", trying(**note)).findings == ()
