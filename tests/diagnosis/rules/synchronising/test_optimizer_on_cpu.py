import pytest

from pinchpoint.trace import HostKind, MemoryKind
from program import Program

WEIGHTS, COPY_US, ADAM_US, MODEL_US = 48_000_000, 1_000, 8_000, 5_000
STEP = "Optimizer.step#AdamW.step"


def training(*, on_cpu=True, comes_back=True):
    """Gradients go to pinned memory, the host waits and updates there, and weights come back."""
    p = Program()
    for _ in p.steps(6):
        p.kernel("forward and backward", MODEL_US)
        with p.frame("train.py(60): update"):
            if on_cpu:
                p.copy(WEIGHTS, COPY_US, MemoryKind.DEVICE, MemoryKind.PINNED)
                p.sync()
            with p.row(STEP, kind=HostKind.ANNOTATION), p.row("aten::_fused_adamw_"):
                if on_cpu:
                    p.busy(ADAM_US)
                else:
                    p.kernel("FusedAdamMathFunctor", 100)
            if on_cpu and comes_back:
                p.copy(WEIGHTS, COPY_US, MemoryKind.PINNED, MemoryKind.DEVICE)
    return p.trace()


def test_the_update_its_copies_and_the_wait_are_one_cause(outcome, ranked, predicted):
    (finding,) = outcome("optimizer-on-cpu", training()).findings
    assert finding.summary.endswith("in update (train.py:60), for which 96 MB cross the link")
    assert finding.cost_ns_per_step == pytest.approx((ADAM_US + 2 * COPY_US) * 1e3, rel=0.02)
    first, *more = ranked(training())
    assert first == "optimizer-on-cpu"
    assert not {"explicit-synchronize", "offloaded-to-host", "operator-host-time"} & {*more}
    # One pass of an H100's memory (90 % of 3.35 TB/s) over seven tensors stays.
    stays_ns = 7 * WEIGHTS / (0.9 * 3.35e12) * 1e9
    assert predicted(training(), "optimizer-on-cpu") == pytest.approx(
        MODEL_US * 1e3 + stays_ns, rel=0.03
    )


def test_copies_that_do_not_come_back_are_another_matter(outcome):
    (finding,) = outcome("optimizer-on-cpu", training(comes_back=False)).findings
    assert finding.cost_ns_per_step == pytest.approx(ADAM_US * 1e3, rel=0.02)


def test_an_optimizer_that_launches_is_none(outcome):
    assert outcome("optimizer-on-cpu", training(on_cpu=False)).answer == "clear"
