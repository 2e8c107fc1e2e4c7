import json

import numpy as np
import pytest

from pinchpoint.bench.run.step_files import read_inside
from pinchpoint.bench.run.timed import TimingRules, timed_part
from pinchpoint.errors import UnreadableFile


def _series(ends_ms, **more):
    n = len(ends_ms)
    return {
        "host_ns": [int(e * 1e6) for e in ends_ms],
        "device_ms": None,
        "work": [None] * n,
        "data_wait_ns": [0] * n,
        "batches": [0] * n,
        "frames": [None] * n,
    } | more


def _write(folder, pid=1, **more):
    document = {"schema": "bench.inside/1", "pid": pid} | more
    (folder / f"steps-{pid}.json").write_text(json.dumps(document))


def test_device_times_are_preferred_to_host_times(tmp_path):
    _write(tmp_path, series={"mark": _series([0, 1, 2], device_ms=[10.0, 12.0])})
    steps = read_inside(tmp_path).steps
    assert (steps.clock, steps.step_ms.tolist()) == ("cuda_event", [10.0, 12.0])


def test_the_optimizer_that_steps_most_often_ends_the_step(tmp_path):
    series = {"optimizer Adam 1": _series([0, 5]), "optimizer SGD 2": _series([0, 1, 2, 3])}
    _write(tmp_path, series=series)
    assert read_inside(tmp_path).steps.source == "optimizer SGD"


def test_marks_win_over_optimizers(tmp_path):
    _write(tmp_path, series={"optimizer Adam 1": _series([0, 1, 2]), "mark": _series([0, 2])})
    assert read_inside(tmp_path).steps.source == "mark"


@pytest.mark.parametrize(
    ("steps", "replays", "models", "source"),
    [
        pytest.param([0, 1, 2], [5, 6, 7, 8], [1, 2], "graph replay", id="steps only warm up"),
        pytest.param([0, 2, 4], [0, 1, 2, 3], [1, 2], "optimizer SGD", id="graphs within steps"),
        pytest.param([], [0, 1], [0, 1, 2], "graph replay", id="graphs of a model"),
        pytest.param([], [], [0, 1, 2], "model Net", id="a model that is only called"),
    ],
)
def test_what_ends_a_step_where_nothing_says_so(tmp_path, steps, replays, models, source):
    names = ("optimizer SGD 1", "graph replay 2", "model Net 3")
    series = {n: _series(ends) for n, ends in zip(names, (steps, replays, models), strict=True)}
    _write(tmp_path, series=series)
    assert read_inside(tmp_path).steps.source == source


def test_rank_zero_speaks_for_the_run(tmp_path):
    _write(tmp_path, 1, rank="1", series={"mark": _series([0, 1, 2, 3])})
    _write(tmp_path, 2, rank="0", series={"mark": _series([0, 7, 14])})
    assert read_inside(tmp_path).steps.step_ms.tolist() == [7.0, 7.0]


def test_no_steps(tmp_path):
    assert read_inside(tmp_path).steps is None
    _write(tmp_path, series={"mark": _series([3])})
    assert read_inside(tmp_path).steps is None


def test_a_damaged_record(tmp_path):
    (tmp_path / "steps-1.json").write_text('{"schema": "bench.inside/1", "ser')
    with pytest.raises(UnreadableFile, match=r"steps-1\.json"):
        read_inside(tmp_path)


def test_a_compilation_in_the_timed_part_is_counted_and_in_the_warm_up_it_is_not(tmp_path):
    ends = np.cumsum([0, 500] + [10] * 60)
    frames = [0, 3] + [3] * 40 + [4] * 20
    _write(tmp_path, series={"mark": _series(ends.tolist(), frames=frames)})
    timed = timed_part(read_inside(tmp_path).steps, TimingRules())
    assert timed.warmup.steps == 1
    assert timed.warmup.converged
    assert timed.recompiles == 1
    assert timed.steps.step_time_ms.median == 10.0
    assert timed.throughput.value == pytest.approx(100.0)
    assert timed.throughput.unit == "steps/s"


def test_waits_for_data_are_a_share_of_the_window(tmp_path):
    n = 50
    _write(
        tmp_path,
        batch_size=16,
        series={
            "optimizer SGD 1": _series(
                [10 * i for i in range(n)],
                data_wait_ns=[4_000_000 * i for i in range(n)],
                batches=list(range(n)),
            )
        },
    )
    timed = timed_part(read_inside(tmp_path).steps, TimingRules())
    assert timed.steps.data_wait_ratio == pytest.approx(0.4)
    assert timed.throughput.value == pytest.approx(1600.0)
    assert timed.throughput.work_unit == "samples"


@pytest.mark.parametrize(("busy", "converged"), [(False, False), (True, None)])
def test_steps_that_grow_are_unsteady_and_where_neighbours_may_be_why_that_is_unknown(
    tmp_path, busy, converged
):
    ends = np.cumsum([0, *np.linspace(10, 40, 60)])
    _write(tmp_path, series={"mark": _series(ends.tolist())})
    timed = timed_part(read_inside(tmp_path).steps, TimingRules(busy=busy))
    assert timed.warmup.converged is converged
    assert ("warmup.converged" in timed.unknown) == busy


@pytest.mark.parametrize(
    ("queued", "ran", "busiest", "others_queued", "own"),
    [
        pytest.param(6, 4, 0, 0, 4, id="alone, and waited for a CPU"),
        pytest.param(0, 4, 0, 0, 10, id="alone, and slept"),
        pytest.param(3, 4, 3, 5, 4, id="slept while a neighbour waited for a CPU"),
        pytest.param(3, 2, 5, 9, 5, id="the busiest is another"),
        pytest.param(0, 2, 4, 3, 7, id="slept while a neighbour waited and then ran"),
    ],
)
def test_a_step_of_ten_ms_without_waiting_for_a_cpu(
    tmp_path, queued, ran, busiest, others_queued, own
):
    """Of its thread, and of those that it slept for; all in ms."""

    def step(ms):
        return [0, int(ms * 1e6)]

    series = _series(
        [0, 10],
        queue_ns=step(queued),
        thread_ns=step(ran),
        busiest_ns=[None, int(busiest * 1e6)],
        others_queue_ns=[None, int(others_queued * 1e6)],
    )
    _write(tmp_path, series={"mark": series})
    assert read_inside(tmp_path).steps.own_ms.tolist() == [own]
