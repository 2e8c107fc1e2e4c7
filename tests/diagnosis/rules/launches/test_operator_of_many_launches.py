import pytest

from program import Program

MATRICES, HOST_US = 100, 20


def decomposing(*, calls=1, kernels=MATRICES, kernel_us=2, beside=20):
    """Each step calls one operator that launches a kernel for each matrix, and some others."""
    p = Program()
    for _ in p.steps(6):
        with p.frame("train.py(9): orthonormal"):
            for _ in range(calls):
                with p.row("aten::linalg_qr", shapes=[[MATRICES, 8, 8], []]):
                    for _ in range(kernels):
                        p.kernel("geqr2", kernel_us)
                        p.busy(HOST_US)
        for _ in range(beside):
            with p.row("aten::add"):
                p.kernel("elementwise", 2)
                p.busy(HOST_US)
    return p.trace()


def recurrent():
    """The same launched far ahead on two streams, each kernel after one of the other stream."""
    p = Program()
    for _ in p.steps(6):
        with p.frame("train.py(9): forward"), p.row("aten::_cudnn_rnn"):
            for i in range(MATRICES):
                p.kernel("cell", 10, stream=7 + i % 2)
        p.sync()
    return p.trace()


def test_names_the_operator_and_what_it_was_given(outcome, ranked):
    trace = decomposing()
    (finding,) = outcome("operator-of-many-launches", trace).findings
    assert finding.summary.startswith(f"One call of aten::linalg_qr launches {MATRICES} kernels")
    assert finding.location.function == "orthonormal"
    assert (finding.evidence[-1].value, finding.evidence[0].value) == (MATRICES, MATRICES)
    assert ranked(trace) == ["per-matrix-linalg"]  # the special case that knows what to do instead


@pytest.mark.parametrize(
    "trace",
    [
        decomposing(calls=MATRICES, kernels=1),
        decomposing(kernel_us=200),
        decomposing(beside=300),
        recurrent(),
    ],
    ids=[
        "a loop in the program",
        "long kernels",
        "a small part of the launches",
        "a device that is busy",
    ],
)
def test_other_launches_are_not_meant(outcome, trace):
    assert outcome("operator-of-many-launches", trace).answer == "clear"
