import pytest

from builders import TraceBuilder
from pinchpoint.analysis.work.workload import workload
from pinchpoint.trace import HostKind
from program import Program

ATTENTION = "aten::scaled_dot_product_attention"


def steps_of(*rows):
    """Steps that each run these operators: (name, shapes or None), and one kernel."""
    p = Program()
    for _ in p.steps(4):
        for name, shapes in rows:
            p.host(name, 10, kind=HostKind.OPERATOR, **({"shapes": shapes} if shapes else {}))
        p.kernel("work", 10)
    return workload(p.trace())


def attention(query, key):
    return ATTENTION, [[2, 8, query, 64], [2, 8, key, 64], [2, 8, key, 64]]


@pytest.mark.parametrize(
    "name",
    ["autograd::engine::evaluate_function: MmBackward0", "torch::autograd::AccumulateGrad"],
)
def test_backward_nodes_are_training(name):
    assert steps_of((name, None)).trains


def test_an_optimizer_step_is_training():
    p = Program()
    for _ in p.steps(3):
        p.host("Optimizer.step#SGD.step", 10, kind=HostKind.ANNOTATION)
    assert workload(p.trace()).trains


def test_parameters_are_gradients_accumulated_a_step():
    assert steps_of(*[("torch::autograd::AccumulateGrad", None)] * 7).parameters == 7


def test_lengths_are_the_commonest_of_each_step():
    found = steps_of(attention(1, 40), attention(1, 40), attention(16, 99))
    assert found.query_lengths == (1, 1, 1)
    assert found.key_lengths == (40, 40, 40)
    assert found.decodes


def test_prefill_is_no_decoding_and_neither_is_training():
    assert not steps_of(attention(128, 128)).decodes
    assert not steps_of(attention(1, 1), ("torch::autograd::AccumulateGrad", None)).decodes


def test_batches_are_the_first_dimensions_of_products():
    linear = [("aten::linear", [[32, 128], [64, 128]])] * 2
    found = steps_of(*linear, ("aten::matmul", [[4, 128], [128, 8]]), ("aten::add", [[9], [9]]))
    assert found.leading_dims == (32, 4)


def test_without_shapes_nothing_is_said():
    found = steps_of((ATTENTION, None), ("aten::linear", None))
    assert (found.query_lengths, found.key_lengths, found.leading_dims) == ((), (), ())
    assert workload(TraceBuilder().trace()).parameters == 0
