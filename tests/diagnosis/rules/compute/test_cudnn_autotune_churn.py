import pytest

from pinchpoint.diagnosis.rules.compute.cudnn_autotune_churn import NEW_SHAPE_NS
from pinchpoint.trace import ApiKind
from program import Program

TRIES, CONVOLUTIONS = 5, 4


def convolving(*, tries=TRIES, operator="aten::conv2d", steps=6):
    """Convolutions of 200 us; a search runs each candidate once more and waits for it."""
    p = Program()
    for _ in p.steps(steps):
        for _ in range(CONVOLUTIONS):
            with p.row(operator), p.row("aten::cudnn_convolution"):
                for _ in range(tries):
                    p.kernel("candidate", 200)
                    p.sync("cudaEventSynchronize", ApiKind.SYNC_EVENT)
                p.kernel("implicit_gemm", 200)
    return p.trace()


def test_counts_waits_of_each_convolution(outcome):
    (finding,) = outcome("cudnn-autotune-churn", convolving()).findings
    assert finding.evidence[0].value == TRIES
    spent_ns = CONVOLUTIONS * (TRIES + 1) * 200e3  # the first try waits for the one before
    assert finding.cost_ns_per_step == pytest.approx(spent_ns, rel=0.05)


def test_without_the_search_each_convolution_runs_once(predicted):
    after_ns = predicted(convolving(), "cudnn-autotune-churn")
    assert after_ns == pytest.approx(CONVOLUTIONS * 200e3, rel=0.1)


def test_convolutions_that_are_known_do_not_wait(outcome):
    assert outcome("cudnn-autotune-churn", convolving(tries=0)).answer == "clear"


def test_other_operators_that_wait_are_not_meant(outcome):
    p = Program()
    for _ in p.steps(6):
        with p.row("aten::linalg_solve"):
            p.kernel("getrf", 200)
            p.sync()
    assert outcome("cudnn-autotune-churn", p.trace()).answer == "clear"


@pytest.mark.parametrize("waited_us", [200, 8_000])
def test_a_new_shape_costs_its_plan_without_the_search_too(outcome, predicted, waited_us):
    p = Program()
    for _ in p.steps(6):
        for searches in (True, False):
            with p.row("aten::conv2d"), p.row("aten::cudnn_convolution"):
                p.busy(20_000 if searches else 100)
                for _ in range(TRIES * searches):
                    p.kernel("candidate", waited_us)
                    p.sync("cudaEventSynchronize", ApiKind.SYNC_EVENT)
                p.kernel("implicit_gemm", 200)
    after_ns = predicted(p.trace(), "cudnn-autotune-churn")
    assert after_ns == pytest.approx(NEW_SHAPE_NS + 100e3, rel=0.1)
    (finding,) = outcome("cudnn-autotune-churn", p.trace()).findings
    assert finding.fix.endswith("which wins up to 2.20 ms of plans for new sizes more")


def test_a_single_pass_does_not_tell_every_step(outcome):
    (finding,) = outcome("cudnn-autotune-churn", convolving(steps=1)).findings
    assert "as a first pass always does" in finding.summary
    (finding,) = outcome("cudnn-autotune-churn", convolving()).findings
    assert "in every step" in finding.summary
