import pytest

from builders import TraceBuilder
from pinchpoint.trace import HostKind
from program import Program

NODE = "autograd::engine::evaluate_function: "
FORWARD_US, SHARED_US, HEAD_US, ADD_US = 500, 400, 100, 10


def training(*, losses=3, added=True, stored=True, stepped=False, graph=False, retained=True):
    """Losses on one encoder, each with a backward pass in which the encoder's node runs."""
    p = Program()
    engine = p.builder.thread("autograd")

    def gradient(*, adds):
        with p.row(NODE + "torch::autograd::AccumulateGrad"):
            if adds:
                with p.row("aten::add_"):
                    p.kernel("add", ADD_US)

    def node(name, number, us, *, records=None):
        with p.row(NODE + name, sequence=number), p.row(name, sequence=number):
            more = {} if records is None else {"sequence": records}
            with p.row("aten::mm", **more):
                p.kernel("gemm", us)

    for i in p.steps(4):
        with p.row("aten::linear", sequence=10 * i):
            p.kernel("gemm", FORWARD_US)
        for loss in range(losses):
            p.thread = engine
            records = 1000 + 10 * i + loss if graph and loss < losses - 1 else None
            node("AddmmBackward0", 10 * i + loss + 1, HEAD_US, records=records)
            if stored:
                gradient(adds=False)
            if loss == 0 or retained:
                node("MmBackward0", 10 * i, SHARED_US, records=records)
                if stored:
                    gradient(adds=added and loss > 0)
            p.thread = 0
            if stepped:
                with p.row("Optimizer.step#SGD.step", kind=HostKind.ANNOTATION):
                    p.kernel("sgd", ADD_US)
        p.sync()
    return p.trace()


def test_what_runs_after_the_first_time_is_in_vain(outcome):
    (finding,) = outcome("backward-repeated", training()).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["runs of a node"] == 3
    assert evidence["nodes that run again"] == 2 * 2  # with what adds the gradients
    assert finding.cost_ns_per_step == 2 * (SHARED_US + ADD_US) * 1_000
    assert finding.location.function == "step"


def test_one_pass_is_left(predicted):
    left = FORWARD_US + 3 * HEAD_US + SHARED_US
    assert predicted(training(), "backward-repeated") == pytest.approx(left * 1_000, rel=0.1)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(training(losses=1), id="one loss"),
        pytest.param(training(retained=False), id="nothing is shared"),
        pytest.param(training(added=False), id="gradients are dropped in between"),
        pytest.param(training(stored=False), id="torch.autograd.grad"),
        pytest.param(training(stepped=True), id="an optimizer steps in between"),
        pytest.param(training(losses=2, graph=True), id="create_graph"),
    ],
)
def test_gradients_that_are_wanted_for_themselves_are_healthy(outcome, trace):
    assert outcome("backward-repeated", trace).answer == "clear"


def test_has_nothing_to_judge(outcome):
    assert outcome("backward-repeated", TraceBuilder().trace()).answer == "not checked"
