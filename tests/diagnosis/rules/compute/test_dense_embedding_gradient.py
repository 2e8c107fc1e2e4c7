import json

import pytest

from builders import TraceBuilder
from device_steps import Work, device_bound
from pinchpoint.trace import DeviceKind

FILL = "void at::native::vectorized_elementwise_kernel<4, FillFunctor<float> >(int)"
SCATTER = "void at::native::(anonymous namespace)::sum_and_scatter<float, long>(long*)"
ADAM = "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float> >(int)"
GEMM = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32(int)"
WIDTH = 128


def ranking(rows, indices, *, tied=False, others=(), values=True, sends=0):
    table = [rows, WIDTH]
    backward = [[indices, WIDTH], [indices], [], [], []]
    given = ["", "", str(rows), "-1", "False"] if values else None
    parameters = [table, *others]
    work = [
        Work(GEMM, 300, "aten::mm", [[1024, 1024]] * 2, ["float"] * 2),
        Work(FILL, 1_000, "aten::fill_", [table, []], ["float", "Scalar"]),
        Work(SCATTER, 60, "aten::embedding_dense_backward", backward, ["float"], None, given),
        Work(ADAM, 7_000, "aten::_fused_adam_", [parameters] * 4, ["TensorList"] * 4),
    ]
    if tied:
        work.append(Work(GEMM, 300, "aten::mm", [[rows, 1024], [1024, WIDTH]], ["float"] * 2))
    if sends:
        message = {"In msg nelems": sends, "Out msg nelems": sends, "dtype": "Float"}
        row = {
            "kind": DeviceKind.COLLECTIVE,
            "collective": "allreduce",
            "collective_args": json.dumps(message | {"Group size": 2}),
        }
        work.append(Work("ncclDevKernel_AllReduce", 9_000, "c10d::allreduce_", device=row))
    return device_bound(work)


def test_only_rows_that_were_read_remain(outcome):
    (finding,) = outcome("dense-embedding-gradient", ranking(6_000_000, 60_000)).findings
    assert finding.cost_ns_per_step == 8_000_000
    assert finding.changes[0].factor == pytest.approx([0.03] * len(finding.changes[0].factor))
    assert finding.saving_bytes == 6_000_000 * WIDTH * 4


def test_other_parameters_of_the_same_optimizer_stay(outcome):
    trace = ranking(6_000_000, 60_000, others=[[6_000_000, WIDTH // 2]])
    (finding,) = outcome("dense-embedding-gradient", trace).findings
    assert max(finding.changes[0].factor) == pytest.approx(1 - 2 / 3 * 0.97)


def test_a_batch_that_reads_much_of_the_table_needs_it(outcome):
    assert outcome("dense-embedding-gradient", ranking(50_000, 20_000)).answer == "clear"


def test_tied_weights_have_dense_gradients(outcome):
    assert outcome("dense-embedding-gradient", ranking(600_000, 6_000, tied=True)).answer == "clear"


def test_cannot_judge_without_the_size_of_the_table(outcome):
    trace = ranking(6_000_000, 60_000, values=False)
    assert outcome("dense-embedding-gradient", trace).answer == "not checked"
    assert outcome("dense-embedding-gradient", TraceBuilder().trace()).answer == "not checked"


@pytest.mark.parametrize(
    ("elements", "left"),
    [
        pytest.param(6_000_000 * WIDTH, 0.03, id="the gradient alone"),
        pytest.param(2 * 6_000_000 * WIDTH, 1 - 0.97 / 2, id="half of a bucket"),
        pytest.param(3 * 6_000_000 * WIDTH, None, id="a bucket of other gradients"),
        pytest.param(6_000_000, None, id="smaller than it"),
    ],
)
def test_only_rows_that_were_read_travel(outcome, elements, left):
    trace = ranking(6_000_000, 60_000, sends=elements)
    (finding,) = outcome("dense-embedding-gradient", trace).findings
    sent = [change.factor for change in finding.changes[2:]]
    assert sent == ([] if left is None else [pytest.approx([left] * len(sent[0]))])
