import pytest

from pinchpoint.trace import DeviceKind, HostKind
from program import LAUNCH_US, Program

LAUNCHES, HOST_US = 80, 20


def optimizing(
    *, launches=LAUNCHES, name="Optimizer.step#AdamW.step", reads=0, products=0, gathers=0, solved=0
):
    """A forward pass of 200 us, then an optimizer step of many launches, HOST_US each."""
    p = Program()
    for _ in p.steps(6):
        with p.row("aten::mm"):
            p.kernel("gemm", 200)
        with p.row(name, kind=HostKind.ANNOTATION):
            for _ in range(launches):
                with p.row("aten::addcdiv_"):
                    p.kernel("elementwise", 3)
                    p.busy(HOST_US - LAUNCH_US)
            for _ in range(products):
                with p.row("aten::mm"):
                    p.kernel("sm90_xmma_gemm_bf16", 100)
            for _ in range(solved):
                with p.row("aten::_linalg_svd"):
                    for _ in range(LAUNCHES):
                        p.kernel("svd_column_rotate_batch", 100)
            for _ in range(gathers):
                with p.row("c10d::allgather_"):
                    p.kernel("ncclDevKernel_AllGather_RING_LL", 100, kind=DeviceKind.COLLECTIVE)
            for _ in range(reads):
                p.read()
    return p.trace()


def test_counts_launches_and_host_time(outcome):
    (finding,) = outcome("unfused-optimizer", optimizing()).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["launches in the optimizer"] == LAUNCHES
    assert evidence["its device time"] == LAUNCHES * 3_000
    assert finding.cost_ns_per_step == pytest.approx(LAUNCHES * HOST_US * 1e3, rel=0.02)


def test_collectives_are_not_fused_away(outcome):
    (finding,) = outcome("unfused-optimizer", optimizing(gathers=10)).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["launches in the optimizer"] == LAUNCHES
    assert evidence["its device time"] == LAUNCHES * 3_000


def test_fused_the_step_is_short(predicted):
    assert predicted(optimizing(), "unfused-optimizer") < 0.5e6


@pytest.mark.parametrize(
    "trace",
    [
        optimizing(launches=8),
        optimizing(launches=8, reads=40),
        optimizing(name="my_update"),
        optimizing(products=40),
        optimizing(solved=1),
        optimizing(launches=8, solved=1),
        optimizing(products=3, gathers=40),
        optimizing(launches=8, gathers=80),
    ],
    ids=["fused", "reads", "other", "multiplies", "solves", "and fused", "and gathers", "gathers"],
)
def test_other_steps_are_not_meant(outcome, trace):
    assert outcome("unfused-optimizer", trace).answer == "clear"


def grouped(rates, *, recorded=True):
    """A fused update for each of these learning rates."""
    p = Program()
    for _ in p.steps(6):
        with p.row("Optimizer.step#AdamW.step", kind=HostKind.ANNOTATION):
            for rate in rates:
                values = {"values": ["", str(rate)]} if recorded else {}
                with p.row("aten::_fused_adamw_", **values):
                    p.kernel("multi_tensor_apply_kernel", 3)
                    p.busy(HOST_US - LAUNCH_US)
    return p.trace()


def test_groups_with_equal_hyperparameters_could_be_one(outcome, predicted):
    trace = grouped([i % 10 for i in range(LAUNCHES)])
    (finding,) = outcome("unfused-optimizer", trace).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["calls of the fused update"] == LAUNCHES
    assert evidence["different hyperparameters"] == 10
    assert "one param group" in finding.fix
    assert predicted(trace, "unfused-optimizer") < 0.3 * LAUNCHES * HOST_US * 1_000


@pytest.mark.parametrize(
    "trace",
    [grouped(range(LAUNCHES)), grouped([0] * LAUNCHES, recorded=False)],
    ids=["all different", "not recorded"],
)
def test_groups_that_differ_are_not_meant(outcome, trace):
    assert outcome("unfused-optimizer", trace).answer == "clear"


def updating(groups, *, tensors=1):
    """Foreach updates of AdamW: eight operators for each group, a kernel for each tensor."""
    p = Program()
    for _ in p.steps(6):
        with p.row("Optimizer.step#AdamW.step", kind=HostKind.ANNOTATION):
            for _ in range(groups):
                for what in ("add_", "lerp_", "mul_", "addcmul_", "sqrt", "div_", "addcdiv_"):
                    with p.row(f"aten::_foreach_{what}"):
                        for _ in range(tensors):
                            p.kernel("multi_tensor_apply_kernel", 3)
                        p.busy(HOST_US - LAUNCH_US)
    return p.trace()


def test_a_group_for_each_tensor_is_why_foreach_does_not_help(outcome):
    (finding,) = outcome("unfused-optimizer", updating(100)).findings
    assert "700 kernels a step, in 100 foreach updates, one for each param group" in finding.summary
    assert finding.fix.startswith("Put parameters with equal hyperparameters into one param group")
    assert "two kernels for each group" in finding.fix  # what fused=True alone leaves


def test_few_groups_of_many_kernels_are_no_matter_of_groups(outcome):
    (finding,) = outcome("unfused-optimizer", updating(4, tensors=40)).findings
    assert "parameter by parameter" in finding.summary
