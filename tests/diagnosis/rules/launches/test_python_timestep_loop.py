import pytest

from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.trace import HostKind
from program import Program

TURNS, HOST_US = 32, 60


def recurrent(*, turns=TURNS, cells=1, kernel_us=3.0, beside=0, inside=None):
    """Each step calls a cell for each position: two operators of HOST_US, two kernels."""
    p = Program()
    for _ in p.steps(6):
        for i in range(turns):
            with p.row(f"nn.Module: LSTMCell_{i % cells}", kind=HostKind.MODULE):
                if inside:
                    with p.row(f"nn.Module: {inside.format(i)}", kind=HostKind.MODULE):
                        p.busy(1)
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


def test_one_call_may_do_all_turns_at_once_or_each_by_itself():
    after = diagnose(recurrent()).found[0].predicted
    each_by_itself = TURNS * 2 * 3e3
    assert after.range_ns[0] < each_by_itself / 2
    assert after.step_ns < each_by_itself <= after.range_ns[1]


@pytest.mark.parametrize(
    "trace",
    [
        recurrent(turns=8),
        recurrent(cells=TURNS),
        recurrent(kernel_us=60),
        recurrent(turns=16, beside=100),
        recurrent(inside="ParametrizationList_{}"),
    ],
    ids=[
        "few turns",
        "layers, each its own module",
        "long kernels",
        "a small shared module",
        "layers of one name, as what is in them shows",
    ],
)
def test_other_steps_are_not_meant(outcome, trace):
    assert outcome("python-timestep-loop", trace).answer == "clear"


def test_one_cell_contains_the_same_at_each_turn(outcome):
    assert outcome("python-timestep-loop", recurrent(inside="Linear_0")).answer == "found"


def test_two_cells_that_take_turns_are_one_loop(outcome):
    (finding,) = outcome("python-timestep-loop", recurrent(cells=2)).findings
    assert finding.evidence[0].value == TURNS / 2


def test_tokens_of_a_generation_are_no_time_steps(outcome):
    p = Program()
    shapes = [[1, 8, 1, 64], [1, 8, 500, 64], [1, 8, 500, 64]]
    for _ in p.steps(6):
        for _ in range(TURNS):
            with p.row("nn.Module: Block_0", kind=HostKind.MODULE):
                for name in ("aten::linear", "aten::scaled_dot_product_attention"):
                    with p.row(name, shapes=shapes):
                        p.kernel("gemv", 3)
                        p.busy(HOST_US)
    assert outcome("python-timestep-loop", p.trace()).answer == "clear"
