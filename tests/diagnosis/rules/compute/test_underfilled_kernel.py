import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.diagnosis.rules.compute.underfilled_kernel import check
from program import Program

MS = 1_000_000


def kernels(*kernels):
    """One program of kernels: (blocks, duration)."""
    b = TraceBuilder()
    for i, (blocks, takes) in enumerate(kernels):
        more = {} if blocks is None else {"grid": f"[{blocks},1,1]", "block": "[1,1,1]"}
        b.launch(i * 100 * MS, 1000, "add", i * 100 * MS + 2000, takes, **more)
    return b.trace()


def test_one_block_leaves_the_device_empty():
    (found,) = check(kernels((1, 66 * MS)))
    assert "1 block of [1,1,1] threads on a device of 132 multiprocessors" in found.summary
    assert found.cost_ns_per_step == round(66 * MS * 131 / 132)
    assert found.changes[0].factor == pytest.approx(1 / 132)


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param((132, 66 * MS), id="a block a multiprocessor"),
        pytest.param((16, 66 * MS), id="a library's reduction"),
        pytest.param((1, 50_000), id="a short kernel"),
    ],
)
def test_what_is_no_such_kernel(kernel):
    assert not list(check(kernels(kernel)))


def test_without_grids_it_is_not_checked():
    with pytest.raises(NotChecked):
        list(check(kernels((None, 66 * MS))))


def test_the_grid_of_a_librarys_operator_is_not_the_users():
    """Nothing may be left of a loop over classes: of its other kernels and waits neither."""
    p = Program()
    for _ in p.steps(4):
        with p.frame("detect.py(9): select"), p.frame("torchvision/ops/boxes.py(106): vanilla"):
            for _ in range(3):
                with p.row("torchvision::nms"):
                    p.kernel("gather_keep_from_mask", 900, grid="[1,1,1]", block="[64,1,1]")
                with p.row("aten::where"):
                    p.kernel("elementwise", 50, grid="[500,1,1]")
                p.sync()
        p.kernel("gemm", 2_000, grid="[500,1,1]")
    trace = p.trace()
    (found,) = check(trace)
    assert found.fix.startswith("Its grid is the operator's own")
    assert found.hint is None
    assert len(found.at_best[0].device_ops) == 2 * len(found.changes[0].device_ops)
    (own,) = check(kernels((1, 66 * MS)))
    assert own.fix.startswith("Launch it with a block")
    assert not own.at_best


def suppressed(*, calls=1, full_blocks=500):
    """Calls of an operator a step: a kernel over all pairs, then one block through them."""
    p = Program()
    for _ in p.steps(4):
        for _ in range(calls):
            with p.row("torchvision::nms"):
                p.kernel("nms_kernel_impl", 100, grid=f"[{full_blocks},1,1]", block="[64,1,1]")
                p.kernel("gather_keep_from_mask", 900, grid="[1,1,1]", block="[64,1,1]")
        p.kernel("gemm", 2_000, grid="[500,1,1]")
        p.sync()
    return p.trace()


def test_what_an_operator_leaves_to_one_block_once_a_step_goes_step_by_step():
    with pytest.raises(NotChecked, match="gather_keep_from_mask is the part of torchvision::nms"):
        list(check(suppressed()))


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(suppressed(calls=3), id="called in a loop"),
        pytest.param(suppressed(full_blocks=2), id="nothing of it fills the device"),
    ],
)
def test_others_may_be_given_less_or_called_once(trace):
    (found,) = check(trace)
    assert found.evidence[0].name == "gather_keep_from_mask"
