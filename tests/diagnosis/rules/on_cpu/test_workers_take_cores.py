from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.diagnosis.rules.on_cpu.workers_take_cores import check
from pinchpoint.trace import LoaderWorker, RunFacts

MS = 1_000_000


def _trace(cpu_ratio=1.0, wait_ms=0, **facts):
    """Steps of 100 ms that compute for 60 ms on cores, and their workers for 20."""
    built = TraceBuilder(devices=())
    for step in range(5):
        at = step * 100 * MS
        built.step(step, at, 100 * MS)
        name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        if wait_ms:
            built.annotation(name, at, wait_ms * MS)
        built.op("aten::mm", at + wait_ms * MS, 90 * MS - wait_ms * MS)
        if cpu_ratio is not None:
            built.add("counters", time_ns=at, name="cpu_ratio", value=float(cpu_ratio))
    known = {
        "user_ns_per_step": 55.0 * MS,
        "kernel_ns_per_step": 5.0 * MS,
        "workers_ns_per_step": 20.0 * MS,
        "loader_workers": (LoaderWorker(2, 9, 10, 1),),
        "cores_allowed": 2.0,
        "cores_there": 2,
    }
    return replace(built.trace(), run=RunFacts(**(known | facts)))


def test_what_workers_take_is_told_by_its_share():
    (found,) = check(_trace())
    assert found.cost_ns_per_step == 25 * MS  # 20 of 80
    assert found.saving_ns_per_step == (12.5 * MS, 50 * MS)


def test_no_step_is_shorter_than_its_own_work_on_all_cores():
    (found,) = check(_trace(user_ns_per_step=160.0 * MS, workers_ns_per_step=150.0 * MS))
    assert found.saving_ns_per_step == (17.5 * MS, 17.5 * MS)  # 165 ms on two cores remain


def test_they_slow_nothing_while_a_step_waits_for_its_batch():
    """Of 100 ms 60 are a wait, as the run timed it: 10 of the other 40 are their share."""
    (found,) = check(_trace(data_wait_ns=(60 * MS, 60 * MS)))
    assert found.cost_ns_per_step == 10 * MS


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(_trace(cpu_ratio=0.7), id="there are cores for both"),
        pytest.param(_trace(loader_workers=()), id="no workers"),
        pytest.param(_trace(wait_ms=40), id="steps wait for them"),
    ],
)
def test_it_stays_quiet(trace):
    assert list(check(trace)) == []


def test_workers_that_take_little_are_seen(outcome):
    said = outcome("workers-take-cores", _trace(workers_ns_per_step=3.0 * MS))
    assert (said.answer, said.why) == ("smaller", "smaller than 6 % of the time on cores: 4.7 %")


@pytest.mark.parametrize(
    "missing", [{"user_ns_per_step": None}, {"workers_ns_per_step": None}, {"cpu_ratio": None}]
)
def test_without_figures_it_is_not_checked(missing):
    with pytest.raises(NotChecked, match="not recorded"):
        list(check(_trace(**missing)))
