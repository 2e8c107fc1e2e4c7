import pytest

from program import Program

DATA, WEIGHTS = [1, 8, 64], [[256, 64], [256, 256], [256]]
CALLS = 10
JUDGED = 5  # of 6 steps


def recurrent(*, copied=WEIGHTS, calls_copying=CALLS, cast=False, first=False):
    """Each step calls a recurrent operator that copies weights before (or after) its product."""
    p = Program()
    for _ in p.steps(6):
        with p.frame("serve.py(20): forward"):
            for call in range(CALLS):
                with p.row(
                    "aten::_cudnn_rnn", shapes=[DATA, WEIGHTS, []], dtypes=["float", "", ""]
                ):
                    if first:
                        p.kernel("gemm", 20)
                    for shape in copied if call < calls_copying else ():
                        types = ["c10::Half", "float"] if cast else ["float", "float"]
                        with p.row("aten::copy_", shapes=[shape, shape], dtypes=types):
                            p.kernel("Memcpy DtoD (Device -> Device)", 30)
                        p.busy(20)
                    p.kernel("gemm", 20)
    return p.trace()


def test_copies_before_the_product_go_away(outcome, ranked):
    trace = recurrent()
    (finding,) = outcome("weights-copied-in-calls", trace).findings
    assert finding.cost_ns_per_step == CALLS * len(WEIGHTS) * 30_000
    assert finding.summary.startswith(f"Each of {CALLS} calls of aten::_cudnn_rnn")
    assert finding.location.function == "forward"
    first, others, host = finding.changes
    assert (len(first.device_ops), first.factor) == (JUDGED * CALLS, 0.0)
    assert len(others.device_ops) == JUDGED * CALLS * (len(WEIGHTS) - 1)
    assert len(host.start_ns) == JUDGED * CALLS
    assert ranked(trace)[0] == "weights-copied-in-calls"


@pytest.mark.parametrize(
    "trace",
    [
        recurrent(copied=[DATA]),
        recurrent(copied=[[1000]]),
        recurrent(calls_copying=1),
        recurrent(cast=True),
        recurrent(copied=[]),
        recurrent(first=True),
    ],
    ids=["data", "no input", "once", "casts", "no copies", "after a product"],
)
def test_other_copies_are_not_meant(outcome, trace):
    assert outcome("weights-copied-in-calls", trace).answer == "clear"


def test_cannot_judge_without_shapes(outcome):
    p = Program()
    for _ in p.steps(4):
        with p.row("aten::_cudnn_rnn"):
            p.kernel("gemm", 20)
    assert outcome("weights-copied-in-calls", p.trace()).answer == "not checked"
