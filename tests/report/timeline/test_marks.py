"""What links of the page lead to: rows, names and stretches of time, known beforehand."""

import numpy as np

from builders import TraceBuilder
from pinchpoint.analysis.replay.changes import (
    AddHostTime,
    DropSyncs,
    GraphLaunches,
    RemoveHostTime,
    RemoveRecordingCost,
    ScaleHostSpans,
)
from pinchpoint.diagnosis.finding import Found
from pinchpoint.report import diagnose
from pinchpoint.report.timeline import marks as module
from pinchpoint.report.timeline.lanes import timeline
from pinchpoint.report.timeline.marks import marks, of_rows, of_times
from pinchpoint.report.timeline.occurrences import Occurrences, occurrences
from pinchpoint.trace import MemoryKind


def rows(*values):
    return np.array(values, np.int64)


def finding(*changes):
    return Found(summary="", evidence=(), cost_ns_per_step=1, changes=changes)


def training():
    builder = TraceBuilder()
    for i in range(4):
        builder.step(i, 1000 * i, 1000)
        builder.op("aten::mm", 1000 * i + 10, 500)
        builder.launch(1000 * i + 20, 100, "gemm", runs_at=1000 * i + 300, for_ns=400)
        builder.copy(
            1000 * i + 700, 50, "Memcpy HtoD", runs_at=1000 * i + 800, for_ns=20,
            size=64, source=MemoryKind.PAGEABLE, target=MemoryKind.DEVICE,
        )  # fmt: skip
    return builder.trace()


def found():
    trace = training()
    report = diagnose(trace)
    return report, marks(trace, timeline(trace), report)


def test_a_finding_happens_where_its_changes_are():
    places = occurrences(
        finding(
            DropSyncs(rows(3, 1)),
            ScaleHostSpans(rows(7), 0.5),
            GraphLaunches(rows(2, 4)),
            GraphLaunches(rows(4)),
            RemoveHostTime(rows(10), rows(20)),
            RemoveRecordingCost(),
            AddHostTime(rows(9), 5),
        )
    )
    assert {table: found.tolist() for table, found in places.rows.items()} == {
        "api_calls": [1, 3],
        "host_ops": [7],
        "device_ops": [2, 4],
    }
    assert (places.start_ns.tolist(), places.end_ns.tolist()) == ([10], [20])
    assert len(places) == 6


def test_a_finding_without_changes_has_no_rows():
    assert len(occurrences(finding())) == 0


def test_rows_are_the_slices_that_draw_them():
    trace = training()
    drawn = timeline(trace)
    mark = of_rows(trace, drawn, "x", Occurrences({"device_ops": rows(0, 2)}))
    starts = drawn.slices.start_ns[list(mark.slices)].tolist()
    assert (starts, mark.count) == ([300, 1300], 2)
    assert drawn.slices.row[list(mark.slices)].tolist() == [0, 2]


def test_stretches_that_touch_are_one():
    mark = of_times("x", rows(0, 10, 30), rows(10, 20, 31))
    assert (mark.starts, mark.lengths, mark.count) == ((0, 30), (20, 1), 2)
    assert of_times("x", rows(), rows()).count == 0


def test_of_many_places_the_nearest_are_joined_and_all_are_counted(monkeypatch):
    monkeypatch.setattr(module, "MOST_PLACES", 2)
    mark = of_times("x", rows(0, 12, 100, 115), rows(10, 20, 110, 120))
    assert (mark.starts, mark.lengths, mark.count) == ((0, 100), (20, 20), 4)


def test_many_rows_become_stretches(monkeypatch):
    monkeypatch.setattr(module, "MOST_PLACES", 2)
    trace = training()
    mark = of_rows(trace, timeline(trace), "x", Occurrences({"device_ops": rows(0, 2, 4)}))
    assert (mark.slices, mark.starts, mark.count) == ((), (300, mark.starts[1]), 3)


def test_rows_of_tables_have_stable_keys():
    report, by_key = found()
    kernels = [row[0] for row in report.tables["kernels"].rows]
    assert by_key[f"kernels-{kernels.index('gemm') + 1}"].names == ("gemm",)
    assert by_key["operators-1"].names == ("aten::mm",)
    assert by_key["steps-2"].label == f"step {report.tables['steps'].rows[1][0]}"
    assert by_key["transfers-1"].count == 4
    assert all(key.split("-")[0].split(" ")[0] for key in by_key)


def test_parts_of_the_step_cover_their_time():
    report, by_key = found()
    gemm = by_key["part gemm"]
    assert gemm.starts == (300, 1300, 2300, 3300)
    assert gemm.lengths == (400,) * 4
    shown = {f"part {part.part}" for part in report.breakdown if part.ns_per_step}
    assert shown <= set(by_key)
