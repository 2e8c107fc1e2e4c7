"""What a run folder keeps beside the recording: telemetry on its clock and by its devices."""

import json
import shutil
from pathlib import Path

import pytest

from kineto_documents import document, launched, op, written
from pinchpoint.analysis.replay.recording_cost import why_uncalibrated
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.report import diagnose
from pinchpoint.run_folder.layout import SCHEMA, VALUES_SCHEMA
from pinchpoint.trace import DeviceSetting, LaunchTimes, LoaderWorker, NodeShares
from pinchpoint.trace.run_values import ProductOrder

BASE_NS = 10**18
TELEMETRY = """unix_ns,device,power_w,cpu_ratio
1000000000000001000,0,100,
1000000000000001000,1,200,
1000000000000001000,,,0.5
"""


def run_folder(folder, *, environment=None, device=None, telemetry=TELEMETRY):
    """A folder with one rank's recording and one look at two devices and the host."""
    (folder / "traces").mkdir(parents=True)
    (folder / "processes").mkdir()
    events = [op("aten::mm", 1, 100), *launched("k", 5, 8, 2, 1)]
    written(folder / "traces", document(*events, baseTimeNanoseconds=BASE_NS), "t.json")
    process = {"rank": 0, "recordings": [{"file": "t.json"}], "device": device}
    documents = {"run.json": {"schema": SCHEMA}, "processes/rank0.json": process}
    if environment is not None:
        documents["env.json"] = environment
    for name, content in documents.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "telemetry.csv").write_text(telemetry)
    return folder


def samples(trace):
    """Metric, device (None: the host) and value, with times since the trace's first event."""
    counters = trace.counters
    known = counters.known("device")
    return {
        (trace.text(counters, "name", i), int(counters["device"][i]) if known[i] else None):
        (float(counters["value"][i]), int(counters["time_ns"][i]))
        for i in range(len(counters))
    }  # fmt: skip


TWO = {"gpu": {"devices": [{"uuid": "GPU-a"}, {"uuid": "GPU-b"}]}}


@pytest.mark.parametrize(
    ("uuid", "power"), [("GPU-a", 100.0), ("GPU-b", 200.0)], ids=["first", "second"]
)
def test_only_the_device_of_the_process_is_kept_under_its_number(tmp_path, uuid, power):
    folder = run_folder(tmp_path / "run", environment=TWO, device={"uuid": uuid, "number": 0})
    found = samples(load(folder))
    assert {key[1] for key in found} == {0, None}
    assert [value for (_, device), (value, _) in found.items() if device == 0] == [power]
    assert {time for _, time in found.values()} == {0}  # a microsecond after the base: the first op


@pytest.mark.parametrize(
    ("environment", "device"),
    [
        pytest.param(None, {"uuid": "GPU-b", "number": 0}, id="no environment record"),
        pytest.param({"gpu": {}}, {"uuid": "GPU-b", "number": 0}, id="no devices in it"),
        pytest.param(TWO, {"uuid": "GPU-z", "number": 0}, id="another device"),
        pytest.param(TWO, None, id="a process that does not say"),
        pytest.param({"gpu": {"devices": [7]}}, {"uuid": [], "number": "x"}, id="nonsense"),
    ],
)
def test_without_a_uuid_in_common_numbers_stay_the_drivers(tmp_path, environment, device):
    folder = run_folder(tmp_path / "run", environment=environment, device=device)
    assert {device for _, device in samples(load(folder))} == {0, 1, None}


def test_the_environment_is_kept_for_the_rules(tmp_path):
    folder = run_folder(tmp_path / "run", environment=TWO | {"cpu": {"cores": 3}})
    assert load(folder).run.documents["cpu"] == {"cores": 3}


@pytest.fixture
def bench(tmp_path):
    """A folder of the benchmark commands without a profile."""
    folder = tmp_path / "bench"
    (folder / "runs").mkdir(parents=True)
    for name in ("session.json", "result.json", "runs/steps-1.json"):
        (folder / name).write_text("{}")
    return folder


def test_of_a_bench_folder_the_profile_is_read(bench):
    run_folder(bench / "profile")
    assert load(bench).source.path == str(bench / "profile")


def test_of_two_profiles_a_comparison_is_proposed(bench):
    for arm in "AB":
        run_folder(bench / f"profile-{arm}")
    with pytest.raises(UnreadableFile, match="2 profiles") as caught:
        load(bench)
    assert caught.value.hint == f"pinchpoint compare {bench}/profile-A {bench}/profile-B"


def test_figures_alone_are_no_recording(bench):
    with pytest.raises(UnreadableFile, match="figures, but no profile") as caught:
        load(bench)
    assert "pinchpoint compare" in caught.value.hint


def test_recorders_without_calibration_stay_so_in_a_run_folder(tmp_path):
    folder = run_folder(tmp_path / "run")
    recording = Path(__file__).parents[1] / "data/xplane/h100_train.xplane.pb.gz"
    shutil.copy(recording, folder / "traces")
    process = {"rank": 0, "recordings": [{"file": recording.name}]}
    (folder / "processes/rank0.json").write_text(json.dumps(process))
    trace = load(folder)
    assert trace.source.format == "run folder (xplane)"
    assert why_uncalibrated(trace) == "no calibration for this recorder"


def test_a_recording_whose_name_holds_a_zero_byte_is_refused(tmp_path):
    folder = run_folder(tmp_path / "run")
    process = {"rank": 0, "recordings": [{"file": "t\0.json"}]}
    (folder / "processes/rank0.json").write_text(json.dumps(process))
    with pytest.raises(UnreadableFile, match="lies outside"):
        load(folder)


def test_a_field_of_the_wrong_type_is_left_out_and_said(tmp_path):
    device = {"uuid": "GPU-b", "number": "x"}
    trace = load(run_folder(tmp_path / "run", environment=TWO, device=device))
    assert {device for _, device in samples(trace)} == {0, 1, None}
    said = [trace.text(trace.health, "detail", i) for i in range(len(trace.health))]
    (problem,) = [text for text in said if "left out" in text]
    assert problem.startswith("rank0.json: device was left out: Expected `int | null`, got `str`")


def test_without_a_readable_recording_the_damage_is_the_reason(tmp_path):
    folder = run_folder(tmp_path / "run")
    (folder / "processes/rank0.json").write_text('{"rank": 0, "recordings": [{"file": 7}]}')
    with pytest.raises(UnreadableFile, match="recordings was left out: Expected `str"):
        load(folder)


def with_two_ranks(folder):
    """A folder as ``pinchpoint run`` writes it: two ranks, each with two recordings."""
    run_folder(folder, environment=TWO)
    (folder / "processes/rank0.json").unlink()
    (folder / "names").mkdir()
    for rank in (0, 1):
        stem = f"rank0000{rank}of00002.host.{70 + rank}"
        for part in ("traces", "names"):
            shutil.copy(folder / "traces/t.json", folder / part / f"{stem}.trace.json")
        notes = [{"file": f"{stem}.trace.json"}, {"file": f"{stem}.trace.json", "window": "names"}]
        document = {"rank": rank, "world_size": 2, "pid": 70 + rank, "recordings": notes}
        (folder / f"processes/{stem}.json").write_text(json.dumps(document))
    (folder / "traces/t.json").unlink()
    (folder / "metrics.json").write_text("{}")
    return folder


def unread(trace):
    facts = [trace.text(trace.health, "fact", i) for i in range(len(trace.health))]
    said = [trace.text(trace.health, "detail", i) for i in range(len(trace.health))]
    pairs = zip(facts, said, strict=True)
    return [text for fact, text in pairs if fact == "run-document-damaged"]


@pytest.mark.parametrize("text", ["", "{", '{"rank": 0, "recor', "[1]", "no JSON"])
@pytest.mark.parametrize(
    "name", ["run.json", "env.json", "metrics.json", "processes/rank00000of00002.host.70.json"]
)
def test_a_document_that_cannot_be_read_is_said_and_the_rest_is_read(tmp_path, name, text):
    folder = with_two_ranks(tmp_path / "run")
    whole = load(folder)
    assert unread(whole) == []
    (folder / name).write_text(text)
    trace = load(folder)
    (sentence,) = unread(trace)
    assert sentence.startswith(f"{name}: ")
    assert len(trace.device_ops) == len(whole.device_ops)
    assert (trace.rank, trace.world_size) == (0, 2)
    assert trace.run.named is not None
    assert any(name in fact.detail for fact in diagnose(trace).health.facts)


def test_all_documents_may_be_damaged(tmp_path):
    folder = with_two_ranks(tmp_path / "run")
    documents = sorted(folder.rglob("*.json"))
    named = [one for one in documents if one.parent.name not in ("traces", "names")]
    for one in named:
        one.write_text("{")
    trace = load(folder)
    assert len(unread(trace)) == len(named) == 5
    assert len(trace.device_ops) == 1


def test_where_the_first_recording_cannot_be_read_the_next_one_is(tmp_path):
    folder = with_two_ranks(tmp_path / "run")
    first, second = sorted((folder / "traces").glob("*.json"))
    first.write_text("{")
    trace = load(folder)
    assert trace.rank == 1
    (sentence,) = unread(trace)
    assert sentence.startswith(f"traces/{first.name}: ")
    second.write_text("{")
    with pytest.raises(UnreadableFile, match=first.name):
        load(folder)


def test_without_a_recording_the_damaged_document_is_the_reason(tmp_path):
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UnreadableFile, match=r"run\.json: no JSON, or cut off"):
        load(tmp_path)


def test_samples_that_cannot_be_read_are_said(tmp_path):
    folder = with_two_ranks(tmp_path / "run")
    for part in ("samples", "values"):
        (folder / part).mkdir()
        (folder / part / "rank00000of00002.host.70.json").write_text("{")
    assert [text.partition("/")[0] for text in unread(load(folder))] == ["samples", "values"]


def with_windows(folder, **files):
    """The run folder with these texts as its windows for names."""
    run_folder(folder)
    (folder / "names").mkdir()
    process = json.loads((folder / "processes/rank0.json").read_text())
    for kind, text in files.items():
        process["recordings"].append({"file": f"{kind}.json", "window": kind})
        if text is not None:
            (folder / f"names/{kind}.json").write_text(text)
    (folder / "processes/rank0.json").write_text(json.dumps(process))
    return folder


def problems(trace):
    facts = [trace.text(trace.health, "fact", i) for i in range(len(trace.health))]
    said = [trace.text(trace.health, "detail", i) for i in range(len(trace.health))]
    return [text for fact, text in zip(facts, said, strict=True) if fact == "run-problem"]


def test_windows_for_names_that_are_damaged_are_left_out_and_said(tmp_path):
    trace = load(with_windows(tmp_path / "run", names=TELEMETRY, rare="[", late=None))
    assert trace.run.named is trace.run.rare is trace.run.late is None
    named, rare = sorted(problems(trace))
    assert named == "names/names.json is left out: it holds nothing of what ran"
    assert rare.startswith("names/rare.json is left out: ")
    assert diagnose(trace).verdict


def test_a_recording_that_is_another_file_is_said_and_its_names_are_none(tmp_path):
    folder = with_windows(tmp_path / "run", names=None)
    shutil.copy(folder / "traces/t.json", folder / "names/names.json")
    assert load(folder).run.named is not None
    (folder / "traces/t.json").write_text(TELEMETRY)
    trace = load(folder)
    assert trace.run.named is None
    assert problems(trace) == [
        "traces/t.json holds nothing of what ran: another's copy?",
        "without the times, names/ is left out; its files can be read alone",
    ]


def test_a_window_with_a_name_that_no_file_has_is_gone(tmp_path):
    folder = with_windows(tmp_path / "run")
    process = {"recordings": [{"file": "t.json"}, {"file": "x" * 5000, "window": "names"}]}
    (folder / "processes/rank0.json").write_text(json.dumps(process))
    assert load(folder).run.named is None


START_NS = 1_700_000_000_000_000_000


@pytest.mark.parametrize(
    ("warm", "early", "before_s"),
    [(24, None, 24), (None, 22, 22), (24, 22, 24), (None, None, None)],
)
def test_how_a_run_that_has_ended_passed(tmp_path, warm, early, before_s):
    folder = run_folder(tmp_path / "run")
    times = {"started_unix_ns": START_NS, "ended_unix_ns": START_NS + 28 * 10**9}
    (folder / "run.json").write_text(json.dumps({"schema": SCHEMA} | times))
    process = json.loads((folder / "processes/rank0.json").read_text())
    if warm is not None:
        process["steps"] = {"warm_unix_ns": START_NS + warm * 10**9}
    if early is not None:
        note = {"window": "early", "steps": 3, "start_unix_ns": START_NS + early * 10**9}
        process["recordings"][0] |= note
    process["loaders"] = [
        {"num_workers": 8, "iterators": 3, "start_ns": 7},
        {"num_workers": 0, "iterators": 2, "start_ns": 5},
        {"num_workers": "many", "iterators": 2, "start_ns": 5},
    ]
    (folder / "processes/rank0.json").write_text(json.dumps(process))
    course = load(folder).run.course
    assert course.total_ns == 28 * 10**9
    assert course.before_ns == (None if before_s is None else before_s * 10**9)
    assert (course.loader_starts, course.loader_workers, course.loader_start_ns) == (3, 8, 7)


def test_a_run_that_was_ended_says_how_many_steps_took_how_long(tmp_path):
    folder = run_folder(tmp_path / "run")
    times = {"started_unix_ns": START_NS, "ended_unix_ns": START_NS + 28 * 10**9}
    (folder / "run.json").write_text(json.dumps({"schema": SCHEMA} | times))
    process = json.loads((folder / "processes/rank0.json").read_text())
    warm = {"warm_unix_ns": START_NS + 8 * 10**9, "count": 1002, "cost_ns": 10**9}
    for complete, counted in ((False, 1000), (True, None)):
        (folder / "processes/rank0.json").write_text(
            json.dumps(process | {"steps": warm, "complete": complete})
        )
        course = load(folder).run.course
        assert course.counted == counted
        assert course.counted_ns == 19 * 10**9


def test_where_unmarked_steps_are_is_spelt_as_frames_are(tmp_path):
    folder = run_folder(tmp_path / "run")
    run = json.loads((folder / "run.json").read_text()) | {"working_directory": "/home/me"}
    (folder / "run.json").write_text(json.dumps(run))
    process = json.loads((folder / "processes/rank0.json").read_text())
    process["steps"] = {"by": "loop", "place": ["/home/me/gp.py", 46, "main"]}
    (folder / "processes/rank0.json").write_text(json.dumps(process))
    assert load(folder).run.turns_at == ("gp.py", 46, "main")


def test_a_run_that_goes_on_has_no_course(tmp_path):
    assert load(run_folder(tmp_path / "run")).run.course is None


def test_what_the_analyses_ask_is_typed(tmp_path):
    folder = run_folder(tmp_path / "run", device={"uuid": "GPU-b", "number": 0})
    process = json.loads((folder / "processes/rank0.json").read_text())
    process |= {
        "steps": {
            "before_ns": [5, 6],
            "after_ns": [7],
            "wait_ns": [1, 2, 3],
            "launch_ns": {"before": 8, "after": 14, "why": None, "unloaded_steps": 1},
        },
        "variables": {"A": "of the program"},
        "cores_allowed": 16,
        "line_tracer": "lines.on_line",
        "threads_died": [
            {"thread": "feeder", "said": "KeyError: 7", "place": ["/w/feed.py", 9, "fill"]}
        ],
        "threads_died_count": 4,
        "cpu_nodes": [1],
        "placement": {
            "bytes": {"0": 100, "1": 300},
            "cpu_ticks": {"1": 50},
            "pinned_ticks": 40,
            "distances": [[10, 20], [20, 10]],
        },
        "switches": {"torch_num_threads": 8, "gc_enabled": True},
    }
    worker = {"workers": 2, "busy_ns": 3, "alive_ns": 4, "torch_threads": 1}
    worker["stream"] = {"samples": 32, "calls": [["data.py", 3, "unpack", 64]]}
    devices = [{"uuid": "GPU-a", "numa_node": 0}, {"uuid": "GPU-b", "numa_node": 1}]
    environment = {
        "gpu": {"count": 2, "devices": devices},
        "host": {"cpus_logical": 64, "cgroup_cpu_max": "200000 100000"},
        "variables": {"values": {"A": "as it was started", "B": "2"}},
    }
    (folder / "loader").mkdir()
    documents = {
        "processes/rank0.json": process,
        "loader/worker.1.json": worker,
        "env.json": environment,
        "metrics.json": {"ranks": [{"rank": 0}, {"rank": 1}]},
    }
    for name, content in documents.items():
        (folder / name).write_text(json.dumps(content))
    facts = load(folder).run
    assert facts.unprofiled_step_ns == (5, 6, 7)
    assert facts.data_wait_ns == (1, 2, 3)
    assert facts.launch == LaunchTimes(8, 14, unloaded_steps=1)
    assert facts.variables == {"A": "of the program", "B": "2"}
    assert (facts.cores_allowed, facts.cores_there, facts.cpu_nodes) == (2.0, 64, (1,))
    assert facts.node_shares == NodeShares({0: 0.25, 1: 0.75}, {1: 1.0}, 0.8, 0.5)
    assert facts.torch_threads == 8
    assert facts.line_tracer == "lines.on_line"
    (death,) = facts.deaths
    assert (death.thread, death.said, facts.deaths_count) == ("feeder", "KeyError: 7", 4)
    assert death.place[1:] == (9, "fill")
    calls = (("data.py", 3, "unpack", 64),)
    assert facts.loader_workers == (LoaderWorker(2, 3, 4, 1, counted_samples=32, calls=calls),)
    assert facts.device == DeviceSetting(numa_node=1)
    assert (facts.devices, facts.processes) == (2, 2)


def test_calls_of_compiled_functions_come_with_what_stands_for_the_run(tmp_path):
    """The two sides of 5 and 9 are apart, and the run's usual one is 9: that side counts."""
    folder = run_folder(tmp_path / "run")
    timed = {"before_ns": [5] * 10, "after_ns": [9] * 10, "run": {"p50": 9, "count": 100}}
    call = {
        "place": ["/w/train.py", 7, "main"],
        "called": "update",
        "inside": 12,
        "inside_mean_ns": 20,
        "inside_median_ns": 19,
        "steps": timed,
    }
    process = {"rank": 0, "calls": [call], "recordings": [{"file": "t.json"}]}
    (folder / "processes/rank0.json").write_text(json.dumps(process))
    (found,) = load(folder).run.calls
    assert (found.place, found.function) == (("/w/train.py", 7, "main"), "update")
    assert (found.inside, found.inside_mean_ns, found.inside_median_ns) == (12, 20, 19)
    assert (found.before_ns, found.after_ns) == ((5,) * 10, (9,) * 10)
    assert found.step_ns == (9,) * 10


def test_work_of_more_than_two_gigabytes_is_read(tmp_path):
    folder = run_folder(tmp_path / "run")
    process = {"rank": 0, "pid": 7, "recordings": [{"file": "t.json"}]}
    (folder / "processes/rank0.json").write_text(json.dumps(process))
    (folder / "values").mkdir()
    again = {"kind": "within", "bytes": 3 << 31, "kept_bytes": 3 << 31}
    ordered = {"kind": "order", "flops": 1 << 40, "flops_left": 1 << 38, "times_left": 2}
    values = {"schema": VALUES_SCHEMA, "pid": 7, "work": [again, ordered]}
    (folder / "values/rank0.7.json").write_text(json.dumps(values))
    first, second = load(folder).run.values.work
    assert (first.kept_bytes, first.order) == (3 << 31, None)
    assert second.order == ProductOrder(1 << 40, 1 << 38, 2, 0)


SECOND_NS = 10**9


def long_steps(folder, *, recorded_ns, steps=0, step_ns=8 * SECOND_NS, on_device=False):
    """A run of long steps with a recording and looks at its thread."""
    run_folder(folder)
    events = launched("k", 5, 8, 2, 1) if on_device else [op("aten::item", 1, 100)]
    written(folder / "traces", document(*events, baseTimeNanoseconds=BASE_NS), "t.json")
    end_ns = BASE_NS + recorded_ns
    note = {"file": "t.json", "steps": steps, "start_unix_ns": BASE_NS, "end_unix_ns": end_ns}
    run = {"p50": step_ns, "least": step_ns, "most": step_ns, "count": 3, "total_ns": 3 * step_ns}
    process = {"rank": 0, "pid": 7, "recordings": [note], "steps": {"count": 3, "run": run}}
    (folder / "processes" / "rank0.json").write_text(json.dumps(process))
    thread = {"name": "MainThread", "main": True, "looks": 240}
    thread |= {"stacks": [[0, 240]], "spent": [[0, 24_000_000, 0, 0]]}
    looks = {
        "schema": "pinchpoint.run-samples/1",
        "pid": 7,
        "frames": [["train.py", 6, "values"]],
        "stacks": [[0]],
        "sampled": {"every_s": 0.1, "seconds": 24.0, "looks": 240, "threads": [thread]},
    }
    (folder / "samples").mkdir()
    (folder / "samples" / "rank0.7.json").write_text(json.dumps(looks))
    return load(folder)


def test_of_a_part_of_one_long_step_the_looks_at_all_of_it_are_judged(tmp_path):
    trace = long_steps(tmp_path / "run", recorded_ns=SECOND_NS)
    assert trace.host_ops is None
    assert trace.run.samples is not None
    assert any("after 1000 ms of a step" in fact.detail for fact in diagnose(trace).health.facts)


@pytest.mark.parametrize(
    "more",
    [
        {"recorded_ns": 5 * SECOND_NS},  # most of a step
        {"recorded_ns": SECOND_NS, "steps": 2},
        {"recorded_ns": SECOND_NS, "on_device": True},
        {"recorded_ns": SECOND_NS, "step_ns": SECOND_NS},
    ],
    ids=["most of a step", "whole steps", "a device", "a step"],
)
def test_other_recordings_are_judged(tmp_path, more):
    assert long_steps(tmp_path / "run", **more).host_ops is not None
