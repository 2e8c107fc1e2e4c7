import pytest

from builders import TraceBuilder
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


MS = 1_000_000


def on_cpus(reduces):
    """Steps of 4 micro-steps of 10 ms: a forward pass, 6 ms of a product, 3 ms in which the thread
    waits for gloo where a micro-step reduces."""
    b = TraceBuilder()
    b.devices = []
    gloo = b.thread("gloo")
    for step in range(5):
        b.step(step, step * 40 * MS, 40 * MS)
        for micro, does in enumerate(reduces):
            at = step * 40 * MS + micro * 10 * MS
            b.annotation("DistributedDataParallel.forward", at + 1_000, 50_000)
            b.op("aten::mm", at + 100_000, 6 * MS)
            if does:
                b.op("torch::distributed::reducer::mul_out", at + 6_200_000, 500_000)
                b.annotation("gloo:all_reduce", at + 6_800_000, 3 * MS, thread=gloo)
    return b.trace()


def test_of_a_program_on_cpus_the_backend_reduces_in_a_thread_of_its_own(outcome, predicted):
    (finding,) = outcome("ddp-sync-every-microstep", on_cpus((True,) * 4)).findings
    assert finding.cost_ns_per_step == 3 * (3 * MS + 500_000)
    assert "Each of 4 micro-steps reduces all gradients between the processes" in finding.summary
    low_ns, high_ns = (40 * MS - 3 * (waits + 500_000) for waits in (3 * MS, 1_500_000))
    said = predicted(on_cpus((True,) * 4), "ddp-sync-every-microstep")
    assert 0.99 * low_ns <= said <= 1.01 * high_ns


@pytest.mark.parametrize("reduces", [(False, False, False, True), (True, False, True, False)])
def test_of_a_program_on_cpus_that_reduces_once_or_as_it_likes(outcome, reduces):
    assert not outcome("ddp-sync-every-microstep", on_cpus(reduces)).findings
