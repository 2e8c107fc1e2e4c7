import pytest

from pinchpoint.trace import MemoryKind
from program import Program

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


def experts(*, product_us=6):
    """A loop over 24 experts: the rows of each are looked up, multiplied and added."""
    p = Program()
    for _ in p.steps(6):
        p.kernel("sm90_xmma_gemm_bf16(int)", 300)
        for _ in range(24):
            with p.frame("moe.py(44): dispatch"):
                with p.row("aten::where"), p.row("aten::nonzero"):
                    p.kernel("void at_cuda_detail::cub::DeviceSelectSweepKernel<int>(int)", 2)
                    p.copy(8, 1, MemoryKind.DEVICE, MemoryKind.PINNED)
                    p.sync()
                for name, kernel, us in (
                    ("aten::index", "void at::native::index_elementwise_kernel<128>(int)", 3),
                    ("aten::mm", "sm90_xmma_gemm_bf16(int)", product_us),
                    ("aten::index_add_", "void at::native::indexFuncLargeIndex<float>(int)", 3),
                ):
                    with p.row(name):
                        p.kernel(kernel, us)
                        p.busy(30)
    return p.trace()


def test_a_loop_over_groups_of_rows_is_the_cause_of_its_waits(outcome):
    """At best one turn does the work of all; products that are work of their own stay apart."""
    (finding,) = outcome("implicit-sync-indexing", experts()).findings
    assert "a Python loop of 24 turns, 5 launches in each" in finding.summary
    assert finding.location.function == "dispatch"
    assert finding.at_best
    assert "grouped product" in finding.fix
    (finding,) = outcome("implicit-sync-indexing", experts(product_us=400)).findings
    assert not finding.at_best
