import pytest

from pinchpoint.trace import HostKind
from program import Program

TURNS, HOST_US = 32, 60


def recurrent(*, turns=TURNS, cells=1, kernel_us=3.0, beside=0):
    """Each step calls a cell for each position: two operators of HOST_US, two kernels."""
    p = Program()
    for _ in p.steps(6):
        for i in range(turns):
            with p.row(f"nn.Module: LSTMCell_{i % cells}", kind=HostKind.MODULE):
                for _ in range(2):
                    with p.row("aten::addmm"):
                        p.kernel("cell", kernel_us)
                        p.busy(HOST_US - 5)
        for _ in range(beside):
            with p.row("aten::add"):
                p.kernel("elementwise", kernel_us)
    return p.trace()


def test_counts_the_turns(outcome):
    (finding,) = outcome("python-timestep-loop", recurrent()).findings
    assert finding.summary == f"nn.Module: LSTMCell_0 is called {TURNS} × a step, in a Python loop"
    assert finding.evidence[0].value == TURNS


def test_takes_the_place_of_many_launches(ranked):
    assert ranked(recurrent()) == ["python-timestep-loop"]


@pytest.mark.parametrize(
    "trace",
    [
        recurrent(turns=8),
        recurrent(cells=TURNS),
        recurrent(kernel_us=60),
        recurrent(turns=16, beside=100),
    ],
    ids=["few turns", "layers, each its own module", "long kernels", "a small shared module"],
)
def test_other_steps_are_not_meant(outcome, trace):
    assert outcome("python-timestep-loop", trace).answer == "clear"
