import pytest

from pinchpoint.analysis.time.stalls import (
    SWITCH_INTERVAL_NS,
    busy_python_threads,
    lock_waits,
    stalls,
)
from pinchpoint.trace import ApiKind, HostKind
from program import Program

SWITCH_US = SWITCH_INTERVAL_NS / 1e3


def working(lengths_us, name="aten::add", steps=6):
    """Steps in which the launching thread's operators take these times."""
    p = Program()
    for _ in p.steps(steps):
        for us in lengths_us:
            p.host(name, us, kind=HostKind.OPERATOR)
            p.kernel("work", 1)
    return p


def test_one_operator_far_longer_than_its_like_is_a_stall():
    found = stalls(working([*[20] * 30, 2_000]).trace())
    assert len(found.rows) == 5  # of six steps the first is not judged
    assert found.excess_ns == pytest.approx(1_980_000, rel=0.01)


def calling(long_us, name="cudaMemsetAsync", kind=ApiKind.MEMSET, kernel_us=1):
    """Thirty short calls a step inside of operators, one of which takes as long as it is told."""
    p = Program()
    for _ in p.steps(6):
        for i in range(31):
            with p.row("aten::zero_"):
                p.call(name, kind, long_us if i == 15 else 5)
            p.kernel("work", kernel_us)
    return p.trace()


def test_a_call_that_asks_the_device_for_something_and_does_not_return_is_a_stall():
    found = stalls(calling(2_000))
    assert found.excess_ns.tolist() == pytest.approx([1_995_000] * 5, rel=0.01)
    assert {calling(2_000).names[calling(2_000).host_ops["name"][row]] for row in found.rows} == {
        "aten::zero_"
    }


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaStreamSynchronize", ApiKind.SYNC_STREAM),
        ("cudaMalloc", ApiKind.MALLOC),
        ("cuModuleLoadData", ApiKind.MODULE_LOAD),
    ],
)
def test_calls_that_may_wait_or_work_are_none(name, kind):
    assert not len(stalls(calling(2_000, name, kind)).rows)


def test_an_operator_that_first_launches_a_kernel_may_prepare_it():
    def lengthy(long_one):
        p = Program()
        for i in p.steps(6):
            for n in range(31):
                with p.row("aten::linear"), p.row("aten::addmm"):
                    p.busy(2_000 if n == 15 else 20)
                    p.kernel(long_one.format(i) if n == 15 else "gemm", 1)
        return len(stalls(p.trace()).rows)

    assert lengthy("gemm") == 5  # of six steps the first is not judged
    assert lengthy("gemm of step {}") == 0


def test_a_call_that_waits_for_a_place_in_the_queue_is_none():
    assert not len(stalls(calling(2_000, kernel_us=3_000)).rows)


def test_an_operator_that_reads_from_the_device_may_wait_where_no_wait_is_recorded():
    p = working([*[20] * 30, 2_000], name="aten::_local_scalar_dense")
    assert not len(stalls(p.trace()).rows)


@pytest.mark.parametrize("lengths", [[20] * 30, [*[20] * 30, 500], [2_000] * 10, [20, 2_000] * 10])
def test_work_that_differs_by_nature_is_none(lengths):
    assert not len(stalls(working(lengths).trace()).rows)


def test_waits_for_the_lock_last_switch_intervals():
    found = lock_waits(working([20, SWITCH_US, 20, 2 * SWITCH_US]).trace())
    assert len(found.rows) == 10
    assert found.excess_ns.sum() == pytest.approx(5 * 3 * SWITCH_INTERVAL_NS, rel=0.01)


def test_other_long_work_is_no_wait_for_the_lock():
    assert not len(lock_waits(working([20, 1.5 * SWITCH_US]).trace()).rows)


def with_thread(frames):
    p = working([100] * 10)
    thread = p.builder.thread("other")
    for depth, name in enumerate(frames):
        p.builder.python(name, depth, p.at - 2 * depth, thread=thread)
    return p.trace()


@pytest.mark.parametrize(
    ("frames", "busy"),
    [
        (["helper.py(1): run"], [1]),
        (["helper.py(1): run", "<built-in function sleep>"], []),
        (["helper.py(1): run", "threading.py(300): wait"], []),
        (["torch/utils/data/_utils/pin_memory.py(18): _pin_memory_loop"], []),
    ],
    ids=["runs", "sleeps", "waits", "framework"],
)
def test_threads_that_run_python_of_the_program(frames, busy):
    assert busy_python_threads(with_thread(frames), 0.5) == busy


def test_the_launching_thread_is_no_rival():
    assert busy_python_threads(working([100] * 10).trace(), 0.0) == []


def beside_naps(run_us, *, stall_ends_late_us=60, stall_us=2_000):
    """A thread that computes and sleeps in turn; the launching thread stalls while it computes."""
    p = Program()
    thread = p.builder.thread("other")
    for _ in p.steps(6):
        for _ in range(5):
            p.host("aten::add", 20, kind=HostKind.OPERATOR)
            begin = p.at
            p.builder.python("helper.py(5): table", begin, run_us * 1_000, thread=thread)
            p.host("aten::add", stall_us, kind=HostKind.OPERATOR)
            p.at = max(p.at, begin + (run_us + stall_ends_late_us) * 1_000)
            p.kernel("work", 1)
            p.builder.python("<built-in function sleep>", p.at, 500_000, thread=thread)
            p.host("aten::add", 520, kind=HostKind.OPERATOR)
    return p.trace()


def test_a_stall_that_ends_when_another_thread_lets_go_waited_for_the_lock():
    found = lock_waits(beside_naps(1_950))
    assert len(found.rows) == 25
    assert found.excess_ns.sum() == pytest.approx(25 * 2_000_000, rel=0.01)


def test_a_stall_that_ends_while_the_other_thread_runs_on_is_something_else():
    assert not len(lock_waits(beside_naps(3_000)).rows)
