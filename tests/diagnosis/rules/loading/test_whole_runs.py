"""Loaders that take most of a run and show in none of the recorded steps."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.evidence.loading import loads
from pinchpoint.diagnosis.rules.loading import dataloader_starved
from pinchpoint.trace import LoaderWorker, RunCourse, RunFacts, RunSamples
from pinchpoint.trace.run_samples import SampledThread, SampledWorker, Spent
from program import Program

S = 1_000_000_000
LOADER = "torch/utils/data/dataloader.py"
WAITING = ("queue.py(180): get", f"{LOADER}(1524): _next_data", f"{LOADER}(741): __next__",
           "train.py(105): main")  # fmt: skip
STOPPING = ("multiprocessing/popen_fork.py(40): wait", f"{LOADER}(1673): _shutdown_workers",
            f"{LOADER}(1709): __del__", "train.py(116): main")  # fmt: skip
TRAINING = ("torch/_tensor.py(623): backward", "train.py(109): main")
STARTING = ("multiprocessing/popen_spawn_posix.py(62): _launch",
            "multiprocessing/process.py(121): start", f"{LOADER}(1192): __init__",
            "train.py(92): main")  # fmt: skip
TRANSFORMING = ("PIL/Image.py(1300): filter", "photos.py(28): blur", "photos.py(60): __getitem__")


def run(*seen, count=0, workers=(), course=None):
    """Six quick steps, and the looks at the main thread over the run."""
    p = Program()
    for _ in p.steps(6):
        p.kernel("work", 5_000)
        p.sync()
    frames = tuple(dict.fromkeys(name for stack, _ in seen for name in stack))
    looked = RunSamples(
        every_s=0.2,
        seconds=15.0,
        looks=sum(looks for _, looks in seen),
        late_median_ns=0,
        cost_ns=0,
        frames=frames,
        stacks=tuple(tuple(map(frames.index, stack)) for stack, _ in seen),
        threads=(
            SampledThread(
                "MainThread", True, 50, 0, tuple((i, looks) for i, (_, looks) in enumerate(seen))
            ),
        ),
        count=count,
        typical_ns=5_000_000 if count else None,
        total_ns=count * 5_000_000,
        workers=workers,
    )
    return replace(p.trace(), run=RunFacts(samples=looked, course=course))


def starved(**more):
    return run((WAITING, 28), (TRAINING, 3), (STOPPING, 47), **more)


def test_a_full_queue_in_the_recorded_steps_is_not_the_run(outcome, ranked):
    workers = (SampledWorker(0, 30, ((TRANSFORMING, 30),)),)
    trace = starved(workers=workers)
    (finding,) = outcome("dataloader-starved", trace).findings
    assert "spends 90 % waiting for its next batch" in finding.summary  # 28 of 31
    assert (finding.location.file, finding.location.line) == ("photos.py", 28)
    assert ranked(trace)[0] == "dataloader-starved"


FORKED = ("torch/utils/data/_utils/worker.py(358): _worker_loop",
          "multiprocessing/process.py(314): _bootstrap", "train.py(84): endless")  # fmt: skip
FETCHING = ("torch/utils/data/_utils/fetch.py(54): fetch",
            "pinchpoint/capture/process/loaders.py(38): timed_fetch", *FORKED)  # fmt: skip
STACKING = ("torch/utils/data/_utils/collate.py(275): collate_tensor_fn", *FETCHING)


def test_workers_that_take_rows_one_by_one_are_told_what_to_do(outcome):
    seen = ((FETCHING, 14), (STACKING, 12), (("table.py(40): __getitem__", *FETCHING), 4))
    (finding,) = outcome(
        "dataloader-starved", starved(workers=(SampledWorker(0, 30, seen),))
    ).findings
    assert str(finding.location) == "__getitem__ (table.py:40)"  # and not where they were forked
    assert "taking samples one by one, in __getitem__ (table.py:40), and stacking them (87 %)" in (
        finding.summary
    )
    assert finding.fix.startswith("Let the dataset fetch a whole batch")


@pytest.mark.parametrize(("called", "streams"), [("__iter__", True), ("__getitem__", False)])
def test_of_a_stream_each_worker_runs_all_so_more_of_them_are_not_advised(outcome, called, streams):
    frames = ("stream.py(88): unpack", f"stream.py(40): {called}", *FETCHING)
    (finding,) = outcome(
        "dataloader-starved", starved(workers=(SampledWorker(0, 30, ((frames, 30),)),))
    ).findings
    assert finding.location.function == "unpack"
    assert ("divide before it" in finding.fix) == streams
    assert ("give the loader more of them" not in finding.fix) == streams


@pytest.mark.parametrize(
    ("called", "streams"), [("shuffle", True), ("pack", False), ("__getitems__", False)]
)
def test_a_generator_that_the_loader_asks_is_a_stream_and_what_collates_is_none(
    outcome, called, streams
):
    frames = ("stream.py(88): unpack", f"stream.py(40): {called}", *FETCHING)
    trace = starved(workers=(SampledWorker(0, 30, ((frames, 30),)),))
    made = LoaderWorker(2, 9, 10, 1, collate=("stream.py", 38, "pack"))
    run = replace(trace.run, loader_workers=(made, made))
    (finding,) = outcome("dataloader-starved", replace(trace, run=run)).findings
    assert ("divide before it" in finding.fix) == streams


def _streaming(called, *, on_cores_ns=200, unpacked=None):
    """Steps of 130 ms on two cores that are full, of which waiting takes 30, their own work 60 and
    two workers the rest."""
    ms, built = 1_000_000, TraceBuilder(devices=())
    for step in range(6):
        at = 130 * ms * step
        built.step(step, at, 130 * ms)
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        built.annotation(name, at, 30 * ms)
        built.op("aten::mm", at + 30 * ms, 100 * ms)
        built.add("counters", time_ns=at, name="cpu_ratio", value=1.0)
    frames = ("stream.py(88): unpack", f"stream.py(40): {called}", *FETCHING)
    rows = tuple(range(len(frames)))
    looked = RunSamples(
        0.2, 15.0, 60, 0, 0, frames, (rows,), (), workers=(SampledWorker(0, 30, ((frames, 30),)),)
    )
    made = LoaderWorker(2, 100, 100, 1)
    if unpacked is not None:
        calls = (("stream.py", 80, "unpack", unpacked), ("stream.py", 90, "unpack", 1))
        made = replace(made, counted_samples=32, calls=calls)
    known = {"user_ns_per_step": 60.0 * ms, "workers_ns_per_step": float(on_cores_ns * ms)}
    return replace(
        built.trace(),
        run=RunFacts(
            samples=looked, loader_workers=(made, made), cores_allowed=2.0, cores_there=2,
            data_wait_ns=(30 * ms,) * 3, torch_threads=1, **known,
        ),
    )  # fmt: skip


def test_workers_that_divide_a_stream_leave_cores_to_the_step(outcome):
    (finding,) = outcome("dataloader-starved", _streaming("shuffle")).findings
    # Of 260 ms on two cores 160 are left: 80 ms, where the waits alone would leave 100.
    assert finding.likely_saving_ns == 50_000_000
    assert finding.saving_ns_per_step == (22_500_000, 50_000_000)


def test_what_each_worker_was_counted_to_do_for_all_is_said(outcome):
    (finding,) = outcome("dataloader-starved", _streaming("shuffle", unpacked=64)).findings
    assert "2 times for each sample of a batch" in finding.summary
    assert finding.fix.startswith("Divide the samples among the workers")
    assert finding.likely_saving_ns == 50_000_000


@pytest.mark.parametrize("unpacked", [32, 96, 0])
def test_what_was_counted_to_be_divided_wins_nothing_by_that(outcome, unpacked):
    """Once for each sample; three times, which two workers do not explain; or for a batch."""
    (finding,) = outcome("dataloader-starved", _streaming("shuffle", unpacked=unpacked)).findings
    assert "divide" not in finding.fix.lower()
    assert finding.saving_ns_per_step is None


def test_workers_of_a_table_divide_it_already(outcome):
    (finding,) = outcome("dataloader-starved", _streaming("__getitem__")).findings
    assert finding.saving_ns_per_step is None


def test_an_iterator_within_a_dataset_with_indices_is_no_stream(outcome):
    frames = ("stream.py(88): __iter__", "stream.py(40): __getitem__", *FETCHING)
    (finding,) = outcome(
        "dataloader-starved", starved(workers=(SampledWorker(0, 30, ((frames, 30),)),))
    ).findings
    assert finding.fix.endswith("give the loader more of them")


def test_without_looks_at_workers_the_place_is_the_wait(outcome):
    (finding,) = outcome("dataloader-starved", starved()).findings
    assert finding.location.line == 105


@pytest.mark.parametrize(
    "trace",
    [
        run((WAITING, 12), (TRAINING, 60)),
        run((STOPPING, 47), (TRAINING, 20)),
        run((WAITING, 5)),
        starved(count=100),
    ],
    ids=["mostly trains", "workers are stopped", "few looks", "steps were timed"],
)
def test_other_runs_are_no_starved_ones(outcome, trace):
    assert outcome("dataloader-starved", trace).answer != "found"


def course(start_s, starts=1, total_s=38):
    return RunCourse(
        total_ns=total_s * S, loader_starts=starts, loader_workers=8, loader_start_ns=start_s * S
    )


def test_starting_workers_may_take_most_of_a_run(outcome, ranked):
    trace = run((STARTING, 150), (TRAINING, 30), course=course(24))
    (finding,) = outcome("worker-respawn", trace).findings
    assert "24.0 s of a run of 38.0 s: 1 start of up to 8 workers" in finding.summary
    assert finding.location.line == 92
    assert "fork" in finding.fix
    assert ranked(trace)[0] == "worker-respawn"


def test_many_starts_are_saved_by_keeping_the_workers(outcome):
    (finding,) = outcome("worker-respawn", run(course=course(24, starts=6))).findings
    assert finding.fix == "Make the loader once and keep its workers"


@pytest.mark.parametrize("known", [None, course(5), course(24, total_s=600)])
def test_other_starts_are_clear(outcome, known):
    assert outcome("worker-respawn", run((TRAINING, 30), course=known)).answer == "clear"


def test_workers_that_are_started_again_for_a_small_part_of_the_run(outcome):
    said = outcome("worker-respawn", run((TRAINING, 30), course=course(24, starts=6, total_s=600)))
    assert (said.answer, said.why) == ("smaller", "smaller than 30 % of the run: 4.0 %")


BUILDING = ("torch/multiprocessing/reductions.py(555): rebuild_storage_filename",
            "multiprocessing/queues.py(122): get", f"{LOADER}(1291): _try_get_data",
            f"{LOADER}(725): __next__", "train.py(132): main")  # fmt: skip


def receiving(looks, stack=BUILDING):
    """Steps of 100 ms on a CPU, of whose thread so many of 100 looks found it in this stack."""
    p = TraceBuilder(devices=())
    for step in range(6):
        p.step(step, step * 100_000_000, 100_000_000)
        next_ = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        p.annotation(next_, step * 100_000_000, 60_000_000)
        p.op("aten::mm", step * 100_000_000 + 60_000_000, 39_000_000)
    spent = (
        Spent(stack, "", looks, looks * 1000, looks * 100, 0),
        Spent(TRAINING, "", 100 - looks, (100 - looks) * 1000, 0, 0),
    )
    seen = SampledThread("MainThread", True, 100, 0, (), spent)
    samples = RunSamples(0.2, 15.0, 100, 0, 0, (), (), (seen,))
    collate = LoaderWorker(2, 9, 10, 1, collate=("train.py", 68, "collate_scenes"))
    loader = (collate,)
    facts = RunFacts(samples=samples, data_wait_ns=(60_000_000,) * 4, loader_workers=loader)
    return replace(p.trace(), run=facts)


def test_tensors_that_the_thread_of_the_steps_takes_in_one_by_one(monkeypatch, outcome):
    monkeypatch.setattr(dataloader_starved, "loads", not_starving)
    (finding,) = outcome("dataloader-starved", receiving(40)).findings
    assert "one by one, 40.0 ms of each step (40 of 100 looks" in finding.summary
    assert "a few large tensors" in finding.fix
    assert str(finding.location) == "collate_scenes (train.py:68)"
    assert finding.likely_saving_ns == 50_000_000  # between what looks found and the whole wait
    assert finding.saving_ns_per_step[1] == 60_000_000


@pytest.mark.parametrize(
    "trace", [receiving(9), receiving(19), receiving(40, BUILDING[:2]), receiving(40, WAITING)]
)
def test_few_looks_or_tensors_of_no_loader_are_no_batch(monkeypatch, outcome, trace):
    monkeypatch.setattr(dataloader_starved, "loads", not_starving)
    assert "one by one" not in str(outcome("dataloader-starved", trace).findings)


def not_starving(trace):
    """Of a recording with frames: only what blocks counts as waiting there."""
    return replace(loads(trace), starving=False)
