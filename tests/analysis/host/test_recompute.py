import json

import pytest

import pinchpoint as pp
from builders import TraceBuilder
from pinchpoint.analysis.host.attribution import recomputed_rows
from pinchpoint.analysis.replay.utilisation import utilisation

NODE = "autograd::engine::evaluate_function: AddmmBackward0"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
BF16 = '["c10::BFloat16","c10::BFloat16"]'


def names_of(trace, mask):
    return [trace.text(trace.host_ops, "name", i) for i in range(len(mask)) if mask[i]]


def test_a_numbered_operator_inside_the_backward_pass_is_recomputed():
    builder = TraceBuilder()
    builder.op("aten::linear", 0, 50, sequence=3)
    builder.op("aten::addmm", 10, 20, sequence=4)
    builder.op(NODE, 100, 200, sequence=4)
    builder.op("aten::linear", 110, 50, sequence=8)
    builder.op("aten::addmm", 120, 20)  # part of the linear layer
    builder.op("aten::mm", 200, 20)  # the gradient itself
    trace = builder.trace()
    assert names_of(trace, recomputed_rows(trace)) == ["aten::linear", "aten::addmm"]


def test_recomputation_is_in_hfu_and_not_in_mfu():
    builder = TraceBuilder()
    for i in range(3):
        at = i * 1_000_000
        builder.step(i, at, 1_000_000)
        builder.op(NODE, at + 100, 500, sequence=4)
        for place, sequence in ((200, 8), (300, None)):
            builder.op("aten::mm", at + place, 50, sequence=sequence, dtypes=BF16,
                       shapes="[[1024,1024],[1024,1024]]")  # fmt: skip
            builder.launch(at + place + 5, 5, GEMM, runs_at=at + place * 1000, for_ns=20_000)
    found = utilisation(builder.trace())
    assert found.flops_per_step == 4 * 1024**3
    assert found.recomputed_flops_per_step == 2 * 1024**3
    assert found.hfu == pytest.approx(2 * found.mfu)


@pytest.mark.torch
@pytest.mark.parametrize("reentrant", [False, True, None])
def test_checkpoints_of_torch(tmp_path, reentrant):
    torch = pytest.importorskip("torch", reason="records a checkpointed backward pass")
    from torch.profiler import ProfilerActivity, profile
    from torch.utils.checkpoint import checkpoint

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
    x = torch.randn(4, 8, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recording:
        y = model(x) if reentrant is None else checkpoint(model, x, use_reentrant=reentrant)
        y.sum().backward()
    path = tmp_path / "checkpoint.json"
    recording.export_chrome_trace(str(path))
    json.loads(path.read_text())
    trace = pp.load(path)
    again = names_of(trace, recomputed_rows(trace))
    assert again.count("aten::addmm") == (0 if reentrant is None else 2)
    assert "aten::mm" not in again
    assert "aten::gelu_backward" not in again
