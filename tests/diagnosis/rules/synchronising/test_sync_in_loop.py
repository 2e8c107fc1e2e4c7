import numpy as np
import pytest

from builders import TraceBuilder
from pinchpoint.analysis.mean.what_if import what_if_mean
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.diagnosis.evidence.device_work import _of_one_step
from pinchpoint.trace import ApiKind, MemoryKind
from program import Program

US = 1_000


def loop(*, read=True, host_us=100, device_us=100, steps=6, inside=None):
    """Each step: a kernel, perhaps an ``.item()`` that waits for it, and host work."""
    b = TraceBuilder()
    wait_us = device_us if read else 0
    period = (host_us + wait_us + 20) * US
    b.python("train.py(1): <module>", 0, steps * period)
    for i in range(steps):
        at = i * period
        b.step(i, at, period)
        b.python("train.py(40): step", at, period)
        b.launch(at + 1 * US, 5 * US, "work", at + 10 * US, device_us * US)
        if inside:
            b.python(inside, at + 6 * US, (wait_us + 10) * US)
        if read:
            b.op("aten::item", at + 7 * US, (wait_us + 8) * US)
            b.op("aten::_local_scalar_dense", at + 7 * US, (wait_us + 7) * US)
            b.copy(
                at + 8 * US,
                2 * US,
                "Memcpy DtoH (Device -> Pinned)",
                at + (10 + device_us) * US,
                1 * US,
                size=4,
                source=MemoryKind.DEVICE,
                target=MemoryKind.PINNED,
            )
            b.api(
                "cudaStreamSynchronize", at + 10 * US, (wait_us + 3) * US, kind=ApiKind.SYNC_STREAM
            )
    return b.trace()


def test_names_the_read_its_place_and_its_cost(outcome):
    (finding,) = outcome("sync-in-loop", loop()).findings
    assert finding.location.file == "train.py"
    assert finding.location.line == 40
    assert finding.location.operator == "aten::item"
    assert finding.cost_ns_per_step == 103 * US
    assert finding.evidence[0].value == 1.0


def test_a_library_that_checks_values_is_named_with_its_option(outcome):
    check = "torch/distributions/distribution.py(71): __init__"
    (finding,) = outcome("sync-in-loop", loop(inside=check)).findings
    assert "inside __init__ of torch.distributions.distribution" in finding.summary
    assert finding.location.line == 40
    assert "validate_args=False" in finding.fix
    (finding,) = outcome("sync-in-loop", loop(inside="torch/_tensor.py(1000): __format__")).findings
    assert "Do not print or format" in finding.fix
    (finding,) = outcome("sync-in-loop", loop(inside="torch/special.py(7): check")).findings
    assert "check reads values of what it is given" in finding.fix


def test_ranks_by_what_taking_turns_costs(ranked):
    assert ranked(loop())[0] == "sync-in-loop"


def test_a_read_that_the_device_does_not_feel_is_no_finding(ranked):
    assert "sync-in-loop" not in ranked(loop(host_us=0, device_us=1_000))


def test_is_quiet_without_reads(outcome):
    assert outcome("sync-in-loop", loop(read=False)).answer == "clear"


def test_cannot_judge_without_a_device(outcome):
    b = TraceBuilder()
    b.op("aten::item", 0, 10)
    assert outcome("sync-in-loop", b.trace()).answer == "not checked"


def test_a_read_of_a_large_tensor_is_another_cause(outcome):
    p = Program()
    for _ in p.steps(6):
        p.kernel("work", 1_000)
        with p.row("aten::copy_"):
            p.copy(1 << 24, 500, MemoryKind.DEVICE, MemoryKind.PAGEABLE, waits=True)
    assert outcome("sync-in-loop", p.trace()).answer == "clear"


CLASSES = 40


def by_class(kernel, *, kernel_us=2, classes=CLASSES):
    """A loop over classes: a mask, a reduction, ``if not mask.any()``, more for each second one."""
    p = Program()
    for _ in p.steps(6):
        p.kernel("sm90_xmma_gemm_bf16(int)", 300)
        for number in range(classes):
            for name in ("aten::eq", "aten::any"):
                with p.row(name):
                    p.kernel(kernel, kernel_us)
                    p.busy(10)
            with p.row("aten::item"), p.row("aten::_local_scalar_dense"):
                p.copy(1, 1, MemoryKind.DEVICE, MemoryKind.PINNED)
                p.sync()
                p.busy(5)
            if number % 2:
                with p.row("aten::sum"):
                    p.kernel(kernel, kernel_us)
                    p.busy(10)
    return p.trace()


MASK = "void at::native::vectorized_elementwise_kernel<4, CompareEqFunctor<long> >(int)"


def test_the_loop_around_the_reads_may_go_as_a_whole(outcome, predicted):
    (finding,) = outcome("sync-in-loop", by_class(MASK)).findings
    evidence = {one.what: one.value for one in finding.evidence}
    # From read to read: the sum of one turn if it has one, two kernels and the copy of the next.
    # Before the first read is the product, after the last one a sum.
    assert evidence["turns of the loop"] == CLASSES
    assert evidence["launches in each"] == pytest.approx(3.4)
    *sure, whole = finding.at_best
    assert [type(one) for one in sure] == [type(one) for one in finding.changes]
    trace = by_class(MASK)
    kinds = 4  # eq, any, the copy, sum
    assert len(np.unique(whole.group)) == len(judged_steps(trace)) * kinds
    alone = what_if_mean(trace, finding.changes, runs_ahead=True).step_ns
    together = what_if_mean(trace, finding.at_best, runs_ahead=True).step_ns
    assert predicted(trace, "sync-in-loop") == pytest.approx((alone * together) ** 0.5, rel=0.02)
    assert together < 0.5 * what_if_mean(trace, finding.changes).step_ns


@pytest.mark.parametrize(
    "more",
    [{"kernel": "sm90_xmma_gemm_bf16(int)"}, {"kernel_us": 50}, {"classes": 8}],
    ids=["products", "long kernels", "few turns"],
)
def test_reads_among_other_work_are_reads_only(outcome, more):
    (finding,) = outcome("sync-in-loop", by_class(**({"kernel": MASK} | more))).findings
    assert not finding.at_best


def test_a_call_whose_end_was_missed_is_no_work_for_values_of_a_step():
    trace = loop()
    steps_of = np.flatnonzero(trace.host_ops["name"] == trace.names.index("train.py(40): step"))
    whole = np.flatnonzero(trace.host_ops["name"] == trace.names.index("train.py(1): <module>"))
    assert _of_one_step(trace, np.concatenate((whole, steps_of))).tolist() == steps_of.tolist()


def reading_twice(second_us):
    """Steps of a kernel of 100 us, a read that waits for it, and another one of so many."""
    p = Program()
    for _ in p.steps(6):
        p.kernel("work", 100)
        p.read()
        if second_us:
            p.kernel("more", second_us)
        p.read()
        p.host("prepare", 200)
    return p.trace()


@pytest.mark.parametrize(("second_us", "once"), [(0, True), (100, False)])
def test_a_second_read_of_what_is_there_is_no_second_wait(outcome, second_us, once):
    (finding,) = outcome("sync-in-loop", reading_twice(second_us)).findings
    assert finding.evidence[0].value == 2.0
    assert finding.once_a_step == once
