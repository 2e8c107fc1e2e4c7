"""Every recording at hand, read once and diagnosed once: what must hold for each of them."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import pinchpoint as pp
from kineto_documents import SCANNERS, differences
from kineto_slowly import agrees_with_a_slow_reading
from pinchpoint.analysis.device.activity import device_activity
from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.host.launches import own_work
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.mean.on_cpu import slower_outside
from pinchpoint.analysis.mean.what_if import by_recorded, what_if_mean
from pinchpoint.analysis.replay.binding import bound
from pinchpoint.analysis.replay.changes import (
    AddHostTime,
    DropSyncs,
    GraphLaunches,
    ReduceLaunches,
    RemoveHostTime,
    ScaleHostSpans,
)
from pinchpoint.analysis.replay.predict import device_busy_ns
from pinchpoint.analysis.replay.ranges import AS_IT_IS
from pinchpoint.analysis.replay.streams import stream_ids
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.tables.call_tree import source_table
from pinchpoint.analysis.tables.kernels import kernels
from pinchpoint.analysis.tables.launch_statistics import launch_statistics
from pinchpoint.analysis.tables.modules import modules
from pinchpoint.analysis.tables.operators import operators
from pinchpoint.analysis.tables.transfers import transfers
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.analysis.time.gaps import gaps
from pinchpoint.analysis.time.idle_causes import idle_causes
from pinchpoint.analysis.time.queue_depth import queue
from pinchpoint.diagnosis.kinds import diagnose, diagnosed_kinds
from pinchpoint.diagnosis.registry import rules
from pinchpoint.importers.kineto import read
from pinchpoint.report import ci, decode, encode, markdown, terminal
from pinchpoint.report.assemble.findings import findings
from pinchpoint.report.documents.clock import as_recorded
from pinchpoint.report.html_page import static
from pinchpoint.report.pages.report import report_page
from pinchpoint.report.words.breakdown import top_parts
from pinchpoint.report.words.steps import base_ns
from pinchpoint.trace import DeviceKind
from pinchpoint.trace import intervals as iv

HERE = Path(__file__).parent / "data"
ALONG = sorted([*HERE.glob("labelled/*.json.gz"), *HERE.glob("kineto/*.json.gz")])
CORPUS = Path(os.environ.get("PINCHPOINT_CORPUS", "/nonexistent"))
FOLDERS = ("own", "public", "labelled", "h200")
FOUND = [p for of in FOLDERS for p in sorted((CORPUS / of / "traces").glob("*.json*"))]
# Fixed and healthy ones of the labelled have few findings, and tests/test_accuracy.py reads all.
CALM = [p for p in FOUND if "labelled" in p.parts and ".slow." not in p.name]
OTHERS = [p for p in FOUND if p not in CALM or p in CALM[::4]]
# Labelled ones come from one machine and one version: some of them say of their form what all say.
ALIKE = [p for p in OTHERS if "labelled" in p.parts]
VARIED = {p for p in OTHERS if p.parts[-3] in ("own", "public")} | set(ALIKE[::8])
OF_HOST = (AddHostTime, DropSyncs, GraphLaunches, ReduceLaunches, RemoveHostTime, ScaleHostSpans)
QUICK_BYTES = 800_000  # Python reads larger ones for seconds, and they repeat their events more
LIFTED_RATIO = 0.01  # of the step without the fix: what rounding and scaling may come to
TO_COPY = (" " * 12, "   confirm", "     record: ", "Next: ")  # commands and code stay whole
LABELS = {
    CORPUS / "labelled" / row["trace"]: row
    for path in [CORPUS / "labelled/truth.jsonl"] if path.exists()
    for row in map(json.loads, path.read_text("utf-8").splitlines()) if row["trace"]
}  # fmt: skip
HOLDING_MEMORY = {"graph-retained", "eval-with-grad", "eval-outputs-kept"}


@pytest.mark.parametrize("path", ALONG, ids=lambda path: path.name)
def test_of_those_that_come_along(path):
    trace = pp.load(path)
    promises_stay_above_what_remains(trace)
    nothing_wins_more_than_is_there(trace)


@pytest.mark.corpus
@pytest.mark.parametrize("path", OTHERS, ids=lambda path: f"{path.parts[-3]}/{path.name}")
def test_of_all_others(path):
    trace = pp.load(path)
    if path in VARIED:
        agrees_with_a_slow_reading(path, trace)
        if "native" in SCANNERS and path.stat().st_size <= QUICK_BYTES:
            assert differences(read(path, scanner="native"), read(path, scanner="plain")) == []
        tables_answer(trace)
        is_drawn_in_every_format(trace)
    if path.parts[-3] != "h200":
        every_nanosecond_is_accounted_for(trace)
    if path in LABELS:
        memory_is_held_where_it_was_planted(trace, LABELS[path])
    promises_stay_above_what_remains(trace)
    nothing_wins_more_than_is_there(trace)


def every_nanosecond_is_accounted_for(trace):
    windows, told, idle = steps(trace), breakdown(trace), gaps(trace)
    assert windows.typical_ns > 0
    assert np.array_equal(windows.start_ns[1:], windows.end_ns[:-1])
    assert np.all(windows.end_ns >= windows.start_ns)
    assert np.array_equal(told.by_step.sum(axis=1), windows.end_ns - windows.start_ns)
    assert int(told.ns_per_step.sum()) == windows.typical_ns
    assert (told.by_step >= 0).all()
    if trace.device_ops is not None and len(trace.device_ops):
        low, high = int(windows.start_ns[0]), int(windows.end_ns[-1])
        busy = iv.flatten(trace.device_ops["start_ns"], trace.device_ops.end_ns)
        assert int(idle.duration_ns.sum()) == iv.complement(busy, low, high).total
        assert np.all(idle.start_ns[1:] >= idle.end_ns[:-1])
        assert device_activity(trace).busy_ns == busy.total
        causes = sum(cause.ns_per_step for cause in idle_causes(trace))
        assert abs(causes - told.of_group("idle")) <= len(told.parts)
    lined_up = queue(trace)
    assert lined_up is None or 0 <= lined_up.empty_ratio <= 1
    bound(trace)


def tables_answer(trace):
    """Every table is there, and little device time is unexplained."""
    for table in (operators, source_table, modules, launch_statistics):
        table(trace)
    rows = transfers(trace)
    ops = trace.device_ops
    if ops is None or not len(ops):
        return
    assert sum(r.count for r in rows) == np.count_nonzero(ops["kind"] == DeviceKind.COPY)
    called = kernels(trace).rows
    kinds = (DeviceKind.KERNEL, DeviceKind.COLLECTIVE)
    assert sum(r.calls for r in called) == np.count_nonzero(np.isin(ops["kind"], kinds))
    vendors = {device.vendor for device in trace.devices}
    if vendors <= {"nvidia", "amd", None} and called:
        other = category_of_device_ops(trace) == Category.OTHER
        assert ops["duration_ns"][other].sum() < 0.05 * ops["duration_ns"].sum()


def questions(diagnosis):
    """Every rule's changes alone, each finding after those before it, and all rules together."""
    everything, before = [], []
    for outcome in diagnosis.outcomes:
        periodic = rules()[outcome.id].rule.periodic
        for finding in outcome.findings:
            everything += finding.changes
            yield outcome.id, list(finding.changes), periodic
    for ranked in diagnosis.found:
        before += ranked.finding.changes
        yield f"up to {ranked.id}", list(before), False
    yield "all rules", everything, False


def promises_stay_above_what_remains(trace):
    """No prediction of any rule lies below the work that its fix leaves, alone or with others.

    And none has to be lifted there: a rule whose replay falls below has dropped what remains. But
    replay lets streams overlap, whose kernels fill the device: then the step is the device's work.
    """
    diagnosis, most_ns = diagnose(trace), shared_by_streams_ns(trace)
    for name, changes, every_step in questions(diagnosis):
        asked = (what_if_mean, pp.what_if) if name == "all rules" else (what_if_mean,)
        for ask in asked if changes else ():
            found = ask(trace, changes, every_step=every_step)
            if found is None:
                continue
            assert found.bound_ns <= found.range_ns[0] <= found.step_ns <= found.range_ns[1], name
            at_least = found.step_ns - LIFTED_RATIO * found.base_ns
            assert found.raw_ns >= at_least or found.step_ns <= most_ns, name
            if all(isinstance(change, OF_HOST) for change in changes):
                least_ns = min(busy_in_a_stream_ns(trace), found.base_ns)
                assert found.step_ns >= least_ns - 1, name
                assert found.range_ns[0] >= (1 - 2 * AS_IT_IS.device) * least_ns - 1, name
    said = (diagnosis, *(of.diagnosis for of in diagnosed_kinds(trace)))
    predictions = [r.predicted for d in said for r in d.found if r.predicted is not None]
    for found in predictions + ([diagnosis.together] if diagnosis.together else []):
        assert found.bound_ns <= found.range_ns[0] <= found.step_ns


def nothing_wins_more_than_is_there(trace):
    """On a CPU, where one thread's time is the step: no finding wins more than it says that its
    cause takes, or more of the recorded time than its changes cover, in steps as long as said."""
    if not computes_on_cpu(trace):
        return
    for ranked in diagnose(trace).found:
        finding = ranked.finding
        if ranked.predicted is None or finding.cost_ns_per_step is None:
            continue
        changes = finding.at_best or finding.changes
        recorded = by_recorded(trace, changes)
        there = max(finding.cost_ns_per_step, recorded.saving_ns if recorded else 0)
        assert ranked.saving_ns <= slower_outside(trace) * there + 1, ranked.id


def shared_by_streams_ns(trace):
    """What the device works in a typical step, where kernels of several streams share it, or 0."""
    ops = trace.device_ops
    if ops is None or not len(ops):
        return 0
    kernels = ops["kind"] == DeviceKind.KERNEL
    streams = {(d, s) for d, s in zip(ops["device"][kernels], ops["stream"][kernels], strict=True)}
    return (1 + LIFTED_RATIO) * device_busy_ns(trace) if len(streams) > 1 else 0


def busy_in_a_stream_ns(trace):
    """What the busiest stream worked, but for collectives, in the typical step that had least."""
    ops, found = trace.device_ops, steps(trace)
    if ops is None or not found.typical.any():
        return 0
    mine = np.zeros(len(ops), np.bool_)
    mine[own_work(trace)] = True
    mine &= ops["kind"] != DeviceKind.COLLECTIVE
    start, end, most = found.start_ns[found.typical], found.end_ns[found.typical], 0
    for one in np.unique(stream_ids(ops)[mine]):
        of = ops.take(np.flatnonzero(mine & (stream_ids(ops) == one)))
        busy = iv.flatten(of["start_ns"], of.end_ns)
        most = np.maximum(most, iv.covered_before(busy, end) - iv.covered_before(busy, start))
    return int(np.min(most))


def memory_is_held_where_it_was_planted(trace, row):
    """Causes that operators or driver calls show without memory events, and nowhere else."""
    if row["variant"] in ("slow", "fixed", "healthy"):
        found = {f.id for f in findings(trace).findings if f.severity != "negligible"}
        assert found == ({row["truth"]} & HOLDING_MEMORY if row["variant"] == "slow" else set())


def is_drawn_in_every_format(trace):
    report = pp.diagnose(trace)
    assert report.crashed == ()
    assert decode(encode(report)) == report
    concludes = report.health.verdict != "cannot conclude"
    assert (report.health.record is None) == concludes
    whole = (report.steps.typical_ns or 0) if concludes else 0
    assert sum(part.ns_per_step for part in report.breakdown) == whole
    assert all(part.ns_per_step >= 0 for part in report.breakdown)
    for shown in (report, as_recorded(report)):  # parts and gains count from one step
        assert sum(ns for _, ns in top_parts(shown)) == (base_ns(shown) if whole else 0)
    assert report.verdict
    page = report_page(report, verbose=True)
    text = terminal.render(page)
    assert all(len(line) <= 80 or line.startswith(TO_COPY) for line in text.splitlines())
    assert markdown.render(page)
    assert static.render(report)
    assert ci.log(report, token="x")
