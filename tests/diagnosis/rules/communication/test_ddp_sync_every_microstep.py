import pytest

from pinchpoint.trace import HostKind
from program import Program

MICRO_STEPS, BUCKETS_US = 4, (300, 500)
ADDS = "torch::autograd::AccumulateGrad"


def accumulating(reduced=(True,) * MICRO_STEPS, *, forward="DistributedDataParallel.forward"):
    """Micro-steps of 1 ms; those marked reduce two buckets, which nothing hides."""
    p = Program()
    for _ in p.steps(6):
        for reduces in reduced:
            p.host(forward, 50, kind=HostKind.ANNOTATION)
            p.kernel("forward_backward", 1_000)
            for us in BUCKETS_US if reduces else ():
                args = {"In msg nelems": us << 14}
                p.collective(us, args | {"dtype": "Float", "Group size": 2})
    return p.trace()


def test_all_but_the_last_reduction_are_needless(outcome):
    (finding,) = outcome("ddp-sync-every-microstep", accumulating()).findings
    assert finding.cost_ns_per_step == (MICRO_STEPS - 1) * sum(BUCKETS_US) * 1_000
    assert finding.evidence[0].value == MICRO_STEPS


def test_the_step_keeps_one_reduction(predicted):
    after_ns = (MICRO_STEPS * 1_000 + sum(BUCKETS_US)) * 1e3
    said = predicted(accumulating(), "ddp-sync-every-microstep")
    assert said == pytest.approx(after_ns, rel=0.05)


def test_the_hooks_that_make_gradients_ready_run_once_as_well(predicted):
    p = Program()
    for _ in p.steps(6):
        for _ in range(MICRO_STEPS):
            p.host("DistributedDataParallel.forward", 50, kind=HostKind.ANNOTATION)
            p.kernel("forward_backward", 1_000)
            with p.row(f"autograd::engine::evaluate_function: {ADDS}"):
                with p.row(ADDS), p.row("aten::add_"):
                    p.kernel("add", 100)
                with p.row("aten::div_"):
                    p.kernel("div", 200)
                args = {"In msg nelems": 1 << 22, "dtype": "Float", "Group size": 2}
                with p.row("record_param_comms"):
                    p.collective(300, args)
    after_ns = (MICRO_STEPS * (1_000 + 100) + 200 + 300) * 1e3
    assert predicted(p.trace(), "ddp-sync-every-microstep") == pytest.approx(after_ns, rel=0.05)


@pytest.mark.parametrize(
    "trace",
    [
        accumulating((False, False, False, True)),
        accumulating((True,)),
        accumulating(forward="forward"),
    ],
    ids=["no_sync", "one micro-step", "no DDP"],
)
def test_other_reductions_are_needed(outcome, trace):
    assert outcome("ddp-sync-every-microstep", trace).answer == "clear"


def test_tokens_are_exchanged_in_every_pass(outcome):
    p = Program()
    for _ in p.steps(6):
        for _ in range(2):
            p.host("DistributedDataParallel.forward", 50, kind=HostKind.ANNOTATION)
            p.kernel("experts", 1_000)
            args = {"In msg nelems": 1 << 22, "dtype": "Float", "Group size": 2}
            p.collective(300, args, collective="alltoall")
    assert outcome("ddp-sync-every-microstep", p.trace()).answer == "clear"
