"""The cut by phase: what is marked, and forward, backward and optimizer outside of marks."""

import numpy as np
import pytest

from builders import TraceBuilder
from pinchpoint.analysis.causal.pieces import NOBODYS, Cut, pieces
from pinchpoint.analysis.causal.profile import causal
from pinchpoint.trace import HostKind
from program import Program


def training(*, marked=()):
    p = Program()
    for step in p.steps(6):
        for name, us in (("forward", 300), ("backward", 500)):
            row = "aten::mm" if name == "forward" else "autograd::engine::evaluate_function: Mm"
            if name in marked:
                with p.row(name, kind=HostKind.ANNOTATION), p.row(row, sequence=step):
                    p.kernel(name, us)
            else:
                with p.row(row, sequence=step):
                    p.kernel(name, us)
        optimizer = p.row("Optimizer.step#AdamW.step", kind=HostKind.ANNOTATION)
        with optimizer, p.row("aten::_fused_adamw_"):
            p.kernel("adam", 50)
    return p.trace()


def of_device(trace):
    found = causal(trace, "phase")
    return {piece.name: piece.device_ns for piece in found.pieces}


def test_without_marks_operators_belong_to_their_pass():
    assert of_device(training()) == {
        "backward": 500_000,
        "forward": 300_000,
        "Optimizer.step#AdamW.step": 50_000,
    }


def test_what_the_program_marks_keeps_its_name():
    """A name that the program has given means what it marked and nothing else."""
    found = of_device(training(marked=("backward",)))
    assert found["backward"] == 500_000
    assert found["forward"] == 300_000
    trace = training(marked=("forward",))
    cut = pieces(trace, Cut.PHASE)
    assert "forward (not marked)" in cut.labels
    assert cut.position(trace, "backward") >= len(trace.names)
    assert cut.name(trace, cut.position(trace, "backward")) == "backward"


def test_a_backward_pass_on_its_own_thread_is_in_the_mark_around_its_call():
    b = TraceBuilder()
    for step in range(3):
        at = step * 1_000_000
        b.step(step, at, 1_000_000)
        b.op("aten::mm", at + 10_000, 50_000)
        b.launch(at + 20_000, 5_000, "gemm", at + 30_000, 100_000)
        b.annotation("my backward", at + 100_000, 800_000)
        b.op("run_backward", at + 110_000, 780_000, kind=HostKind.PYTHON)
        node = "autograd::engine::evaluate_function: MmBackward0"
        b.op(node, at + 200_000, 100_000, thread=7)
        b.launch(at + 220_000, 5_000, "gemm_backward", at + 230_000, 400_000, thread=7)
    trace = b.trace()
    found = pieces(trace, Cut.PHASE)
    names = [found.name(trace, at) for at in found.device.tolist()]
    assert names == ["forward", "my backward"] * 3
    assert (found.host[:-1] >= NOBODYS).all()


def test_without_a_backward_pass_there_are_marks_alone():
    p = Program()
    for _ in p.steps(4):
        with p.row("aten::mm"):
            p.kernel("gemm", 100)
    found = pieces(p.trace(), Cut.PHASE)
    assert found.labels == ()
    assert np.unique(found.device).tolist() == pytest.approx([NOBODYS])
