import pytest

from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.trace import HostKind, MemoryKind
from program import Program

US = 1_000
HOST_US, DEVICE_US = 400, 1_000


def masked(operator, *, wait=True):
    """Each step picks elements by a mask after a kernel, and then works on the host."""
    p, waits = Program(), []
    for _ in p.steps(6):
        p.kernel("work", DEVICE_US)
        with p.frame("loss.py(12): masked_mean"), p.row("aten::index"), p.row(operator):
            p.kernel("DeviceSelect", 2)
            if wait:
                p.copy(8, 1, MemoryKind.DEVICE, MemoryKind.PINNED)
                waits.append(p.sync())
        p.busy(HOST_US)
    return p.trace(), waits


def test_names_the_operator_whose_result_has_no_known_size(outcome):
    trace, waits = masked("aten::nonzero")
    (finding,) = outcome("implicit-sync-indexing", trace).findings
    assert finding.summary.startswith("aten::index in masked_mean (loss.py:12)")
    assert finding.cost_ns_per_step == waits[-1]
    assert {e.what: e.value for e in finding.evidence}["results of unknown size"] == 1


def test_without_the_wait_host_work_hides_behind_the_device(gain):
    trace, _ = masked("aten::nonzero")
    assert gain(trace, "implicit-sync-indexing") == pytest.approx(HOST_US * 1e3, rel=0.1)


@pytest.mark.parametrize(
    ("operator", "wait"),
    [("aten::item", True), ("aten::nonzero", False)],
    ids=["a read of a value", "a form of fixed size"],
)
def test_other_indexing_is_fine(outcome, operator, wait):
    trace, _ = masked(operator, wait=wait)
    assert outcome("implicit-sync-indexing", trace).answer == "clear"


def experts(*, product_us=6, own=True):
    """Two loops over 24 experts: the rows of each are looked up, multiplied by a matrix of its own
    and added. Their number differs, and so do the blocks of what is launched for them."""
    p = Program()
    for _ in p.steps(6):
        for _ in range(2):
            p.kernel("sm90_xmma_gemm_bf16(int)", 300)
            with p.frame("moe.py(44): dispatch"):
                for expert in range(24):
                    _expert(p, 2 + expert % 5, product_us, own=own)
            with p.row("aten::norm"):
                p.kernel("reduce_kernel", 5)
            with p.row("aten::sub"):
                p.kernel("elementwise_kernel", 5)
    return p.trace()


def _expert(p, blocks, product_us, *, own):
    with p.row("aten::where"), p.row("aten::nonzero"):
        p.kernel("void at_cuda_detail::cub::DeviceSelectSweepKernel<int>(int)", 2)
        p.copy(8, 1, MemoryKind.DEVICE, MemoryKind.PINNED)
        p.sync()
    if own:
        p.host("aten::select", 3, kind=HostKind.OPERATOR)
    for name, kernel, us in (
        ("aten::index", "void at::native::index_elementwise_kernel<128>(int)", 3),
        ("aten::mm", "sm90_xmma_gemm_bf16(int)", product_us),
        ("aten::index_add_", "void at::native::indexFuncLargeIndex<float>(int)", 3),
    ):
        with p.row(name):
            p.kernel(kernel, us, grid_x=blocks, grid_y=1, grid_z=1)
            p.busy(30)


def test_a_loop_over_groups_of_rows_is_the_cause_of_its_waits_and_launches():
    """Each layer's loop is one turn afterwards; the products of both layers and one turn are left,
    and replaying a graph is no second cause of the same time."""
    trace = experts()
    found = diagnose(trace).found
    first = found[0]
    assert [one.id for one in found] == ["implicit-sync-indexing"]
    assert "dispatch (moe.py:44): 46 turns a step, each of 5 launches" in first.finding.summary
    assert first.finding.location.function == "dispatch"
    assert "grouped product" in first.finding.fix
    assert 600 * US < first.predicted.step_ns < 1_100 * US
    assert first.predicted.base_ns > 4_500 * US


def test_turns_with_the_same_weights_may_need_each_other(outcome):
    """Levels of a tree, for example: doing all at once is the most that can be won."""
    (finding,) = outcome("implicit-sync-indexing", experts(own=False)).findings
    assert len(finding.changes) == 1
    assert len(finding.at_best) == 2


def test_products_that_fill_the_device_win_nothing_together(gain):
    """24 of 400 µs take as long in one launch; without a grid they count as filling it."""
    trace = experts(product_us=400)
    assert gain(trace, "implicit-sync-indexing") < 24 * 2 * 150 * US
