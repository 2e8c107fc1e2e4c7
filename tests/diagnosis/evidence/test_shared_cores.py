"""What a step wins where workers of its loader compute less, on cores that are all taken."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from looked_at_runs import looked_at, spent, thread
from pinchpoint.diagnosis.evidence.loading import loads
from pinchpoint.diagnosis.evidence.shared_cores import without_work_of_workers, won_at_most_ns
from pinchpoint.trace import LoaderWorker, RunFacts

MS = 1_000_000
NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def steps(wait_ms=10, cpu_ratio=1.0, quick_ms=None, **facts):
    """Steps of 100 ms, 30 of them on a core, that wait for workers who compute for 70;
    ``quick_ms``: what its operator takes in one of them, others being held up."""
    built = TraceBuilder(devices=())
    for step in range(6):
        at = step * 100 * MS
        built.step(step, at, 100 * MS)
        built.annotation(NEXT, at, wait_ms * MS)
        took_ms = 90 - wait_ms if quick_ms is None or step != 3 else quick_ms
        inputs = {"shapes": "[[8, 8], [8, 8]]", "dtypes": '["float", "float"]'}
        built.op("aten::mm", at + wait_ms * MS, took_ms * MS, **inputs)
        built.add("counters", time_ns=at, name="cpu_ratio", value=float(cpu_ratio))
    known = {
        "unprofiled_step_ns": (100 * MS,) * 10,
        "data_wait_ns": (wait_ms * MS,) * 10,
        "user_ns_per_step": 28.0 * MS,
        "kernel_ns_per_step": 2.0 * MS,
        "workers_ns_per_step": 70.0 * MS,
        "loader_workers": (LoaderWorker(2, 8, 10, 1),),
        "torch_threads": 1,
        "cores_allowed": 2.0,
        "cores_there": 2,
        "cores_of_others": 1.0,
    }
    return replace(built.trace(), run=RunFacts(**(known | facts)))


def won(trace, gone=0.9):
    return without_work_of_workers(trace, loads(trace), gone)


def test_both_get_one_core_of_two_and_share_what_is_left():
    """37 ms of work remain for one core; alone, on both cores, the step's own 30 ms."""
    found = won(steps())
    assert found.likely_ns == pytest.approx(63 * MS, rel=0.01)
    assert found.range_ns == pytest.approx((0.5 * 0.9 * 70 * MS, 70 * MS), rel=0.01)


def test_threads_that_wait_for_each_other_compute_nothing():
    """Of 110 ms on cores of two threads most is waiting: the operator took 80 ms in four steps and
    20 in one, 68 on average, and 32 passed outside of it. So 2 * 20 + 32 are its own, and 7 of the
    workers stay: 79 on two cores, of which alone it needs 36."""
    held = {"user_ns_per_step": 108.0 * MS, "torch_threads": 2, "cores_of_others": 0.0}
    found = won(steps(quick_ms=20, **held))
    assert found.likely_ns == pytest.approx((100 - 79 / 2) * MS, rel=0.02)
    alone = won(steps(quick_ms=20, **(held | {"torch_threads": 1})))
    assert alone.likely_ns == 0  # one thread waits for none of its own


def test_no_batch_comes_sooner_than_its_worker_makes_it():
    """Two workers that are at it for 0.8 of 100 ms each still take 40 ms for half of it."""
    found = won(steps(workers_ns_per_step=20.0 * MS, user_ns_per_step=1.0 * MS), gone=0.5)
    assert found.likely_ns == pytest.approx(60 * MS, rel=0.01)


def test_with_cores_to_spare_only_the_waits_are_won():
    found = won(steps(cpu_ratio=0.6, wait_ms=40))
    assert (found.likely_ns, found.range_ns) == (40 * MS, (30 * MS, 40 * MS))
    assert won(steps(cpu_ratio=0.6, wait_ms=0)) is None


def test_where_time_on_cores_is_not_known_a_replay_tells_the_waits():
    found = won(steps(user_ns_per_step=None))
    assert found.range_ns is None
    (change,) = found.changes
    assert change.factor == 0.02


def with_looks(*seen, **facts):
    """The same steps with looks at their thread."""
    samples = looked_at(thread(*seen)).run.samples
    return steps(samples=samples, **facts)


IN_LOADER = ("torch/multiprocessing/reductions.py(540): rebuild_storage_fd",
             "torch/utils/data/dataloader.py(741): __next__", "train.py(9): main")  # fmt: skip
TRAINS = ("train.py(12): main",)


def test_what_the_thread_computes_outside_of_the_loader_stays():
    """Of ten seconds two on a core in training; what it rebuilds in next() goes with its way."""
    seen = (spent(IN_LOADER, 6.0, on_core=0.5), spent(TRAINS, 4.0, on_core=0.5))
    assert won_at_most_ns(with_looks(*seen)) == pytest.approx(80 * MS, rel=0.01)
    assert won_at_most_ns(with_looks(*seen, torch_threads=4)) is None  # others compute for it
    assert won_at_most_ns(with_looks(spent(TRAINS, 0.5))) is None  # few looks
    assert won_at_most_ns(steps()) is None
