"""The documents of a run folder: written and read back, old, new and damaged."""

import json

import msgspec
import pytest

from pinchpoint.errors import UnreadableFile
from pinchpoint.run_folder.documents import (
    EnvironmentDocument,
    GpuRecord,
    GpuSection,
    HostSection,
    LoaderNote,
    MemoryPeaks,
    Placement,
    ProcessDevice,
    ProcessDocument,
    RecordingNote,
    RunDocument,
    Switches,
    VariablesSection,
    WorkerDocument,
    read,
    read_if_there,
    write,
)
from pinchpoint.run_folder.metrics import (
    DataWait,
    LaunchMicroseconds,
    MetricsDocument,
    Others,
    RankMetrics,
    StepMetrics,
    StepPercentiles,
    UnprofiledSteps,
    WorkerMetrics,
    cost_of_ten_minutes,
    cost_ratio,
)
from pinchpoint.run_folder.step_times import LaunchNote, RunSteps, StepTimes

DOCUMENTS = (
    RunDocument(
        status="ended",
        command=("python", "train.py"),
        working_directory="/w",
        asked={"steps": 6, "after_s": None},
        started_unix_ns=1,
        ended_unix_ns=2,
        exit_code=-9,
        problems=("a disk was full",),
        recordings=("traces/a.json.gz",),
        devices=("H100",),
        not_sampled={"host": {"power_w": "no sensor"}},
    ),
    ProcessDocument(
        rank=1,
        world_size=2,
        host="node",
        steps=StepTimes(
            by="optimizer",
            count=3,
            steady=True,
            before_ns=(5, 6),
            after_ns=(7,),
            wait_ns=(1, 2, 3),
            launch_ns=LaunchNote(before=8, why="a CUDA graph was being captured"),
            run=RunSteps(p50=6, count=3, total_ns=18, least=5, most=7),
        ),
        recordings=(RecordingNote(file="a.json.gz", bytes=10, kernels=1, start_unix_ns=4),),
        loaders=(LoaderNote(num_workers=2, batch_size="odd", iterators=1),),
        memory=MemoryPeaks(host_peak_bytes=1 << 40),
        device=ProcessDevice(number=0, uuid="GPU-a"),
        switches=Switches(torch_num_threads=8),
        variables={"OMP_NUM_THREADS": "8"},
        cores_allowed=16,
        cpu_nodes=(0, 1),
        placement=Placement(bytes={"0": 9}, cpu_ticks={"1": 8}, distances=((10, 20), (20, 10))),
    ),
    WorkerDocument(worker=1, workers=4, batches=7, busy_ns=9, alive_ns=10, torch_threads=1),
    EnvironmentDocument(
        gpu=GpuSection(count=1, devices=(GpuRecord(uuid="GPU-a", numa_node=-1),)),
        host=HostSection(cpus_logical=16, cgroup_cpu_max="max 100000"),
        variables=VariablesSection(values={"A": "1"}),
    ),
    MetricsDocument(
        exit_code=0,
        duration_s=1.5,
        processes=2,
        steps=StepMetrics(
            found_by="loader",
            count=3,
            unprofiled_ms=UnprofiledSteps(count=3, median=1.25),
            run_ms=StepPercentiles(p50=1.5),
            launch_us=LaunchMicroseconds(before=8.3, after=14.7),
        ),
        data_wait=DataWait(median_ms=0.5),
        ranks=(RankMetrics(rank=0, recordings=("a.json.gz",)),),
        loader_workers=WorkerMetrics(processes=2, busy_ratio=0.5),
        gpu=({"device": "0", "power_w": {"mean": 1.0}},),
        others=Others(sentences=("GPU 0 was shared",)),
        profiled=True,
    ),
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: type(d).__name__)
def test_what_is_written_is_read_back(tmp_path, document):
    path = tmp_path / "document.json"
    write(path, document)
    found = read(path, type(document))
    assert found.document == document
    assert found.problems == ()
    assert found.plain == json.loads(path.read_text())


@pytest.mark.parametrize("kind", [type(d) for d in DOCUMENTS])
def test_a_folder_of_another_version_is_read(tmp_path, kind):
    path = tmp_path / "document.json"
    path.write_text('{"of_a_later_version": {"x": [1]}}')
    assert read(path, kind).document == kind()
    assert read_if_there(tmp_path / "absent.json", kind).document == kind()


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"before_ns": "many"}, id="a word for a list"),
        pytest.param({"before_ns": [1, 2**63]}, id="more than 64 bits hold"),
        pytest.param({"before_ns": [1, -1]}, id="less than nothing"),
        pytest.param([], id="a list for an object"),
        pytest.param({"run": {"p50": 1.5}}, id="half a nanosecond"),
    ],
)
def test_a_wrong_field_is_left_out_with_one_sentence(tmp_path, wrong):
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"rank": 3, "steps": wrong}))
    found = read(path, ProcessDocument)
    assert found.document == ProcessDocument(rank=3)
    (problem,) = found.problems
    assert problem.startswith("rank0.json: steps was left out: Expected ")


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"{", "no JSON"),
        (b'{"a": NaN}', "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "not the document"),
    ],
)
def test_what_is_no_document_is_refused(tmp_path, raw, words):
    path = tmp_path / "run.json"
    path.write_bytes(raw)
    with pytest.raises(UnreadableFile, match=words):
        read(path, RunDocument)


def test_a_figure_that_is_no_number_is_written_as_unknown(tmp_path):
    write(tmp_path / "m.json", MetricsDocument(duration_s=float("nan")))
    assert read(tmp_path / "m.json", MetricsDocument).document.duration_s is None


def test_the_encoder_keeps_the_order_of_the_fields(tmp_path):
    write(tmp_path / "r.json", RunDocument())
    keys = list(json.loads((tmp_path / "r.json").read_text()))
    assert keys == [f.name for f in msgspec.structs.fields(RunDocument)]


@pytest.mark.parametrize(
    ("after_ns", "usual_ns", "count", "standing"),
    [
        ((70, 72), 36, 200, (43, 44)),
        ((70, 72), 75, 200, (70, 72)),
        ((50, 52), 36, 200, (43, 44, 50, 52)),
        ((70, 72), 36, 4, (43, 44, 70, 72)),
        ((70, 72), None, 200, (43, 44, 70, 72)),
    ],
    ids=["others came", "others left", "alike", "no more steps than these", "not known"],
)
def test_of_two_sides_that_differ_the_one_like_the_run_stands_for_it(
    after_ns, usual_ns, count, standing
):
    timed = StepTimes(
        before_ns=(43, 44), after_ns=after_ns, wait_ns=(1, 2, 3, 4),
        run=RunSteps(p50=usual_ns, count=count),
    )  # fmt: skip
    assert timed.unprofiled_ns == standing
    assert len(timed.unprofiled_wait_ns) == len(standing)


def test_ten_minutes_take_no_more_looks_than_they_may():
    """0.3 s once and 0.6 % of a core, however much of a short run its first looks took."""
    short = MetricsDocument(
        duration_s=20.0, steps=StepMetrics(recording_cost_ms=1_200.0), samples_cost_ms=400.0
    )
    assert cost_ratio(short) == pytest.approx(0.08)
    assert cost_of_ten_minutes(short) == pytest.approx(1.2 / 600 + 0.3 / 600 + 0.006)
    longer = msgspec.structs.replace(short, duration_s=100.0)
    assert cost_of_ten_minutes(longer) == pytest.approx(1.2 / 600 + 0.004)


@pytest.mark.parametrize(
    ("usual_ns", "unloaded"),
    [pytest.param(10, 2, id="both sides"), pytest.param(20, 0, id="the side after alone")],
)
def test_steps_before_the_profiler_first_ran_are_known_among_those_that_stand(usual_ns, unloaded):
    steps = StepTimes(
        before_ns=(10, 10, 10),
        after_ns=(10,) * 3 if usual_ns == 10 else (20,) * 3,
        launch_ns=LaunchNote(before=8, after=9, unloaded_steps=2),
        run=RunSteps(p50=usual_ns, count=40),
    )
    assert steps.unloaded_steps == unloaded


@pytest.mark.parametrize(
    ("before", "after", "more"),
    [(8, 14, 6), (14, 8, 0), (None, 14, None), (8, None, None)],
)
def test_what_a_launch_costs_more(before, after, more):
    assert LaunchNote(before=before, after=after).more_ns == more
    assert LaunchMicroseconds(before=before, after=after).more == more


@pytest.mark.parametrize(
    ("p90", "count", "expected"),
    [
        (12_000, 500, (11_000, 12_000, 10_000)),  # what a recording leaves behind for a while
        (16_000, 500, (13_200, 14_400, 12_000)),  # a tenth of the run's steps is as long
        (12_000, 29, (13_200, 14_400, 12_000)),  # of a run of few steps these are a good part
        (None, 500, (13_200, 14_400, 12_000)),  # a folder of an older version
    ],
)
def test_timed_steps_that_nearly_all_of_a_run_are_shorter_than(p90, count, expected):
    run = RunSteps(p50=10_900, p90=p90, count=count, total_ns=11_000 * count)
    waits = (1_200, 2_400, 0)
    timed = StepTimes(before_ns=(13_200, 14_400), after_ns=(12_000,), wait_ns=waits, run=run)
    assert timed.unprofiled_ns == expected
    ratio = expected[0] / 13_200
    assert timed.unprofiled_wait_ns == tuple(round(ratio * ns) for ns in waits)


@pytest.mark.parametrize(
    ("shorter", "count", "expected_ns"),
    [
        (1, 80, 12_100),  # others had the machine while these were timed
        (4, 80, 14_000),  # as chance would have it
        (1, 12, 14_000),  # no more steps than these
    ],
)
def test_timed_steps_that_are_longer_than_the_middle_of_more_others(shorter, count, expected_ns):
    run = RunSteps(p50=11_000, p90=15_000, count=count, total_ns=12_000 * count)
    timed = (10_500,) * shorter + (14_000,) * (12 - shorter)
    steps = StepTimes(before_ns=timed[:6], after_ns=timed[6:], run=run)
    assert sorted(steps.unprofiled_ns)[6] == pytest.approx(expected_ns, rel=0.03)


@pytest.mark.parametrize(
    ("longer", "count", "after_ns", "expected_ns"),
    [
        pytest.param(1, 100, 14_000, 24_000, id="they lived on batches that were ready"),
        pytest.param(4, 100, 14_000, 14_000, id="as chance would have it"),
        pytest.param(1, 30, 14_000, 14_000, id="no more steps than these"),
        pytest.param(1, 100, 24_500, 14_000, id="as those just after, which have what it left"),
    ],
)
def test_timed_steps_that_are_shorter_than_the_middle_of_more_others(
    longer, count, after_ns, expected_ns
):
    run = RunSteps(p50=24_000, p90=35_000, count=count, total_ns=28_000 * count)
    after = (after_ns,) * (12 - longer) + (26_000,) * longer
    waits = (100,) * 22
    run = msgspec.structs.replace(run, wait_total_ns=9_000 * count)
    steps = StepTimes(before_ns=(14_000,) * 10, after_ns=after, wait_ns=waits, run=run)
    if after_ns == 24_500:
        assert steps.quicker_than_run is None
        return
    assert sorted(steps.unprofiled_ns)[6] == expected_ns
    paced = expected_ns > 14_000
    assert steps.unprofiled_wait_ns == ((9_000,) * 22 if paced else waits)
    assert steps.quicker_than_run == ((14_000, count) if paced else None)


def test_usual_steps_of_bursts_that_are_longer_than_the_runs():
    """Far ones stay as they were: how far, the run's middle one does not say."""
    run = RunSteps(p50=8_000, p90=90_000, count=400, total_ns=25_000 * 400)
    before, after = (10_000,) + (13_000,) * 9, (13_000,) * 3 + (190_000,) * 2
    steps = StepTimes(before_ns=before, after_ns=after, run=run)
    assert sorted(steps.unprofiled_ns) == [10_000] * 13 + [190_000] * 2


def test_a_run_of_few_steps_of_which_none_was_timed():
    steps = StepTimes(count=4, run=RunSteps(p50=9_000, count=1, total_ns=9_000, least=9_000))
    assert steps.unprofiled_ns == ()
    assert steps.unprofiled_wait_ns == ()
    assert steps.quicker_than_run is None
