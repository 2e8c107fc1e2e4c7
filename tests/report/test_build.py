"""From a small trace to the document."""

import pytest

from builders import TraceBuilder
from pinchpoint.report import decode, diagnose, encode
from pinchpoint.report.tables import MOST_ROWS
from pinchpoint.trace import HostKind, Severity


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


def test_the_document_round_trips(builder):
    report = diagnose(builder.trace())
    assert decode(encode(report)) == report


def test_a_trace_of_nothing_has_a_report():
    report = diagnose(TraceBuilder().trace())
    assert report.steps.how == "none"
    assert report.steps.count == 0
    assert report.tables == {}


def test_without_stacks_there_are_no_tables_of_source_and_modules(builder):
    assert set(diagnose(builder.trace()).tables) == {"operators", "kernels"}


def test_source_and_module_tables(builder):
    builder.python("train.py(12): train_step", 100_000, 80_000)
    builder.op("nn.Module: Linear_0", 101_000, 70_000, kind=HostKind.MODULE)
    tables = diagnose(builder.trace()).tables
    assert tables["source"].rows[0][:3] == ("train_step", "train.py:12", 60_000)
    assert tables["modules"].rows[0][:2] == ("Linear_0", 60_000)
