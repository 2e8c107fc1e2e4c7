"""From a small trace to the document."""

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.replay import predict
from pinchpoint.report import decode, diagnose, encode
from pinchpoint.report.tables.columns import MOST_ROWS
from pinchpoint.report.words.steps import step_sentence
from pinchpoint.trace import (
    ApiKind,
    Device,
    HostKind,
    LaunchTimes,
    MemoryKind,
    RunFacts,
    Severity,
    Source,
)


@pytest.fixture
def builder():
    """Four steps of 100 µs with one kernel of 60 µs each."""
    b = TraceBuilder()
    for i in range(4):
        b.step(i, at=i * 100_000, takes=90_000)
        b.op("aten::mm", i * 100_000 + 10_000, 20_000)
        b.launch(i * 100_000 + 12_000, 5_000, "sgemm", i * 100_000 + 30_000, 60_000)
    return b


def test_what_was_read(builder):
    report = diagnose(builder.trace(rank=3, world_size=8))
    assert report.source.devices == ("NVIDIA H100 80GB HBM3",)
    assert report.source.events == 8 + 4 + 4  # annotations and operators, calls, kernels
    assert (report.source.rank, report.source.world_size) == (3, 8)


def test_devices_are_those_that_did_something(builder):
    builder.devices.append(Device(1, "NVIDIA H100 80GB HBM3"))
    builder.launch(350_000, 1_000, "sgemm", 395_000, 1_000, device=2)
    assert diagnose(builder.trace()).source.devices == ("NVIDIA H100 80GB HBM3", "device 2")
    cpu_only = TraceBuilder()
    cpu_only.op("aten::mm", 0, 10)
    report = diagnose(cpu_only.trace())
    assert report.source.devices == ()
    assert report.device is None


def test_the_device_over_the_whole_recording(builder):
    device = diagnose(builder.trace()).device
    assert (device.span_ns, device.busy_ns) == (360_000, 240_000)
    assert device.idle_ratio == pytest.approx(1 / 3)
    assert (device.kernels, device.copies) == (4, 0)


def test_steps(builder):
    steps = diagnose(builder.trace()).steps
    assert steps.how == "marker"
    assert steps.count == 4
    assert steps.duration_ns == (100_000,) * 3  # the first one has no beginning
    assert steps.typical_ns == 100_000


def test_tables(builder):
    tables = diagnose(builder.trace()).tables
    operators, kernels = tables["operators"], tables["kernels"]
    ids = [column.id for column in operators.columns]
    first = dict(zip(ids, operators.rows[0], strict=True))
    assert first["name"] == "aten::mm"
    assert first["device_self_ns"] == 240_000
    assert first["calls"] == 4
    assert kernels.rows[0][0] == "sgemm"


def test_long_tables_say_what_they_leave_out():
    b = TraceBuilder()
    for i in range(MOST_ROWS + 20):
        b.op(f"op{i}", i * 10, 5)
    table = diagnose(b.trace()).tables["operators"]
    assert len(table.rows) == MOST_ROWS
    assert table.rows_left_out == 20


@pytest.mark.parametrize(
    ("severities", "verdict"),
    [
        ([], "good"),
        ([Severity.NOTE], "good"),
        ([Severity.NOTE, Severity.WARNING], "limited"),
        ([Severity.WARNING, Severity.FATAL], "cannot conclude"),
    ],
)
def test_health(builder, severities, verdict):
    for severity in severities:
        builder.add("health", fact="f", severity=severity, count=2, detail="why")
    health = diagnose(builder.trace()).health
    assert health.verdict == verdict
    assert [f.severity for f in health.facts] == [s.name.lower() for s in severities]
    assert (health.record is not None) == (verdict == "cannot conclude")


def test_a_file_that_forbids_conclusions_gets_none(builder):
    builder.add("health", fact="lost", severity=Severity.FATAL, count=9, detail="kernels are lost")
    report = diagnose(builder.trace())
    assert report.verdict == "Cannot conclude: kernels are lost."
    assert (report.breakdown, report.findings, report.clear) == ((), (), ())
    assert "kernels" in report.tables


def test_the_document_round_trips(builder):
    report = diagnose(builder.trace())
    assert decode(encode(report)) == report


def test_a_trace_of_nothing_has_a_report():
    report = diagnose(TraceBuilder().trace())
    assert report.steps.how == "none"
    assert report.steps.count == 0
    assert report.tables == {}


def test_without_stacks_there_are_no_tables_of_source_and_modules(builder):
    tables = diagnose(builder.trace()).tables
    assert list(tables) == ["steps", "idle", "pieces", "operators", "kernels", "launches"]


def test_the_parts_add_up_to_the_step(builder):
    report = diagnose(builder.trace())
    by_part = {part.part: part.ns_per_step for part in report.breakdown}
    assert by_part["gemm"] == 60_000
    assert sum(by_part.values()) == report.steps.typical_ns == 100_000
    corrected = [part.unprofiled_ns_per_step for part in report.breakdown]
    assert sum(corrected) == report.steps.unprofiled_ns_predicted


def test_the_table_of_steps(builder):
    table = diagnose(builder.trace()).tables["steps"]
    columns = [column.id for column in table.columns]
    steps = [dict(zip(columns, row, strict=True)) for row in table.rows]
    assert [step["duration_ns"] for step in steps[1:]] == [100_000] * 3
    assert [step["device_ns"] for step in steps] == [60_000] * 4
    assert [step["idle_ns"] for step in steps[1:]] == [40_000] * 3
    assert [step["complete"] for step in steps] == ["partial", "yes", "yes", "yes"]


def test_idle_time_by_cause_adds_up(builder):
    table = diagnose(builder.trace()).tables["idle"]
    column = [c.id for c in table.columns].index("ns_per_step")
    assert sum(row[column] for row in table.rows) == 40_000


def test_copies_and_waits(builder):
    builder.copy(
        150_000,
        5_000,
        "Memcpy HtoD (Pageable -> Device)",
        152_000,
        1_000,
        size=4_000,
        source=MemoryKind.PAGEABLE,
        target=MemoryKind.DEVICE,
    )
    builder.api("cudaStreamSynchronize", 160_000, 7_000, kind=ApiKind.SYNC_STREAM)
    tables = diagnose(builder.trace()).tables
    transfer = dict(
        zip([c.id for c in tables["transfers"].columns], tables["transfers"].rows[0], strict=True)
    )
    assert (transfer["bytes"], transfer["rate"], transfer["source"]) == (4_000, 4.0, "pageable")
    assert tables["waits"].rows[0][:3] == ("cudaStreamSynchronize", 7_000, 1)


def test_measured_steps_beat_an_estimate(builder):
    run = RunFacts(unprofiled_step_ns=(80_000, 82_000, 84_000))
    steps = diagnose(builder.trace(run=run)).steps
    assert steps.unprofiled_ns_predicted == 82_000
    assert steps.unprofiled_ns_range == (80_400, 83_600)
    assert steps.unprofiled_how == "measured in the same run"


def test_what_launches_cost_more_is_said_and_what_was_timed_is_kept(builder, monkeypatch):
    monkeypatch.setattr(predict, "_hidden_in_ns", lambda trace, step_ns, more_ns: more_ns)
    run = RunFacts(unprofiled_step_ns=(80_000, 82_000, 84_000), launch=LaunchTimes(8_300, 14_700))
    report = diagnose(builder.trace(run=run))
    assert report.steps.unprofiled_ns_predicted == 82_000 - 6_400
    assert report.steps.measured_ns == 82_000
    assert report.steps.launch_more_ns == 6_400
    assert step_sentence(report).startswith("A step takes 75.6 µs without the profiler (")
    assert (
        "measured in the same run, less what launches cost more since the recording (6.4 µs each)"
    ) in step_sentence(report)


def test_launches_that_cost_no_more_need_no_words(builder):
    run = RunFacts(unprofiled_step_ns=(80_000,) * 3, launch=LaunchTimes(8_300, 8_300))
    steps = diagnose(builder.trace(run=run)).steps
    assert (steps.measured_ns, steps.launch_more_ns) == (None, 0)
    assert steps.unprofiled_how == "measured in the same run"


def test_source_and_module_tables(builder):
    builder.python("train.py(12): train_step", 100_000, 80_000)
    builder.op("nn.Module: Linear_0", 101_000, 70_000, kind=HostKind.MODULE)
    tables = diagnose(builder.trace()).tables
    assert tables["source"].rows[0][:3] == ("train_step", "train.py:12", 60_000)
    assert tables["modules"].rows[0][:2] == ("Linear_0", 60_000)


def test_a_recorder_without_calibration_is_not_corrected(builder):
    steps = diagnose(builder.trace(source=Source("a", "xplane", recorder="jax"))).steps
    assert steps.unprofiled_ns_predicted is None
    assert steps.unprofiled_how == "not corrected: no calibration for this recorder"


def test_one_operation_and_nothing_of_the_program_forbids_conclusions():
    b = TraceBuilder()
    b.launch(0, 5, "Memset", 10, 1)
    report = diagnose(b.trace(host_ops=None))
    assert report.health.verdict == "cannot conclude"
    assert "hardly any device operation" in report.verdict
    assert report.findings == ()


@pytest.mark.parametrize(
    ("begun_ns", "lasts_ns", "concludes"),
    [
        pytest.param(10, 990, True, id="from the first call on"),
        pytest.param(50_000_000, 20_000_000, True, id="for long, once it began"),
        pytest.param(50_000, 20_000, False, id="one short operation"),
    ],
)
def test_few_operations_that_fill_the_time_say_what_a_program_does(begun_ns, lasts_ns, concludes):
    b = TraceBuilder()
    b.launch(0, 5, "simulate", begun_ns, lasts_ns)
    said = diagnose(b.trace(host_ops=None)).health.verdict
    assert (said != "cannot conclude") == concludes
