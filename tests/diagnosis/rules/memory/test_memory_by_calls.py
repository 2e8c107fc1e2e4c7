"""What the memory rules say about traces that have no memory events."""

from builders import TraceBuilder
from diagnosis.rules.memory.memory_answers import answers
from pinchpoint.trace import ApiKind

MS = 1_000_000


def looped(
    *,
    mallocs: int = 0,
    frees: int = 0,
    nodes: int = 0,
    backward: bool = False,
    operator: str = "aten::addmm",
):
    """Six steps; in each some operators, which record nodes, and driver calls."""
    b = TraceBuilder()
    number = 0
    for step in range(6):
        start = step * 10 * MS
        b.step(step, start, 9 * MS)
        for i in range(8):
            number += 1 if i < nodes else 0
            at = start + i * MS
            b.op(
                operator,
                at,
                MS // 2,
                sequence=number,
                shapes="[[4096], [262144, 4096], [4096, 4096]]",
                dtypes='["float", "float", "float"]',
            )
            if i < frees:
                b.api("cudaFree", at + 10, 1000, kind=ApiKind.FREE)
            if i < mallocs:
                b.api("cudaMalloc", at + 2000, 1000, kind=ApiKind.MALLOC)
        if backward:
            b.op("autograd::engine::evaluate_function: AddmmBackward0", start + 8 * MS, 1000)
        b.launch(start + 8 * MS + 5000, 2000, "gemm", start + 8 * MS + 9000, 1000)
    return b.trace()


def test_memory_bought_in_every_step_with_nodes_that_never_run():
    found = answers(looped(mallocs=2, nodes=8))
    assert list(found) == ["graph-retained"]
    assert found["graph-retained"].cost_ns_per_step == 2000


def test_memory_bought_in_every_step_without_a_graph():
    assert list(answers(looped(mallocs=1))) == ["eval-outputs-kept"]


def test_memory_bought_while_training_is_not_judged_without_memory_events():
    assert answers(looped(mallocs=1, nodes=8, backward=True)) == {}


def test_nodes_without_a_backward_pass():
    found = answers(looped(nodes=8))
    assert list(found) == ["eval-with-grad"]
    assert found["eval-with-grad"].saving_bytes == 8 * 262144 * 4096 * 4


def test_a_counter_that_does_not_move_records_nothing():
    assert answers(looped()) == {}


def test_frees_inside_operators_are_retries():
    trace = looped(mallocs=2, frees=2, nodes=8, backward=True)
    assert list(answers(trace)) == ["memory-fragmentation"]


def test_frees_while_cudnn_searches_are_none():
    trace = looped(mallocs=2, frees=2, nodes=8, backward=True, operator="aten::cudnn_convolution")
    assert answers(trace) == {}


def test_a_trace_without_anything_is_not_checked():
    assert answers(TraceBuilder().trace()) == {}
