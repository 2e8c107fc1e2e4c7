"""From a trace to the one document: every analysis asked once, every rule run."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from pinchpoint.analysis.device.activity import device_activity, each_device
from pinchpoint.analysis.limits.roofs import spec_of
from pinchpoint.analysis.mean.mean_step import usual_range_ns, usual_step_ns
from pinchpoint.analysis.mean.what_if import why_not_closer
from pinchpoint.analysis.mean.whole_run import only_samples
from pinchpoint.analysis.replay.binding import too_few_operations
from pinchpoint.analysis.replay.predict import corrected_range_ns
from pinchpoint.analysis.replay.recording_cost import why_uncalibrated
from pinchpoint.analysis.steps.before import before_what_is_judged
from pinchpoint.analysis.steps.in_steps import says_too_little
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.steps.timed import timed_by_run, why_no_calls
from pinchpoint.analysis.work.kv_cache import kv_cache
from pinchpoint.analysis.work.serving import serving
from pinchpoint.diagnosis import windows
from pinchpoint.diagnosis.commands import program_of
from pinchpoint.diagnosis.evidence.deaths import died
from pinchpoint.diagnosis.ladder import in_order
from pinchpoint.diagnosis.verdict import verdict
from pinchpoint.importers.health import FACTS
from pinchpoint.json_text import said
from pinchpoint.report.assemble.findings import answers
from pinchpoint.report.assemble.ladder import ladder_info
from pinchpoint.report.assemble.mean import causes_of_kinds, kind_of_steps, mean_fields
from pinchpoint.report.assemble.run import (
    run_breakdown,
    run_health,
    run_info,
    run_steps,
    run_tables,
    run_verdict,
)
from pinchpoint.report.assemble.timed import how_known, launch_fields, parts_of_step
from pinchpoint.report.documents.causal import critical_path_info, ladder, shown_pieces
from pinchpoint.report.documents.clock import AS_RECORDED, WITH_NAMES
from pinchpoint.report.documents.left_over import (
    furthest,
    heaviest_line,
    without_limit,
    without_limit_ratio,
)
from pinchpoint.report.documents.report import (
    BeforeInfo,
    DeviceInfo,
    Health,
    HealthFact,
    KvCacheInfo,
    OneDeviceInfo,
    ProcessInfo,
    QueueInfo,
    Report,
    ResultTable,
    RoundInfo,
    RoundsInfo,
    ServingInfo,
    SourceInfo,
    StepsInfo,
    TableColumn,
)
from pinchpoint.report.words.report import CANNOT_CONCLUDE
from pinchpoint.report.words.steps import NOT_CORRECTED
from pinchpoint.trace import DeviceKind, Severity, Trace
from pinchpoint.trace.arrays import distinct
from pinchpoint.trace.processes import ProcessPart, processes

if TYPE_CHECKING:
    from pinchpoint.report.documents.roofline import RooflineDocument


_RECORD_AGAIN = "export after the profiler has stopped"


def diagnose(trace: Trace, *, detailed: bool = True) -> Report:
    """Everything that Pinchpoint has to say about one recording.

    Tables and roofline only where ``detailed``: an answer that shows none is not kept waiting.
    Where the file's health forbids conclusions about time there is no breakdown and no finding:
    ``health`` says why and how to record again.
    """
    health = _health(trace)
    if only_samples(trace):
        return _of_samples(trace, run_health(trace, health), detailed)
    if health.verdict == CANNOT_CONCLUDE:
        why = next(fact.detail for fact in health.facts if fact.severity == "fatal")
        return _facts(trace, health, detailed, verdict=f"{died(trace)}Cannot conclude: {why}.")
    diagnosis = in_order(windows.diagnose(trace))
    program = program_of(trace)
    said = answers(diagnosis, program)
    best = said["findings"][0].id if said["findings"] else None
    report = _facts(
        trace,
        health,
        detailed,
        breakdown=parts_of_step(trace),
        verdict=verdict(trace),
        next_command=f"pinchpoint explain {best}" if best else _all_ranks(trace) or _memory(trace),
        far_from_limit=furthest(trace) or furthest(windows.names_of(trace)),
        without_limit=without_limit(trace) and without_limit(windows.names_of(trace)),
        without_limit_ratio=without_limit_ratio(windows.names_of(trace)),
        heaviest_line=heaviest_line(trace, windows.names_of(trace)),
        fix_ladder=ladder_info(trace, diagnosis),
        ladder=ladder(shown_pieces(trace)) if detailed else (),
        critical_path=critical_path_info(trace) if detailed else None,
        queue=_queue(trace) if detailed else None,
        **said,
    )
    return replace(report, steps=causes_of_kinds(trace, report.steps, program))


def _of_samples(trace: Trace, health: Health, detailed: bool) -> Report:
    """The whole run as one step, where nothing of it was recorded but looks at its threads."""
    shown: dict[str, Any] = {"steps": run_steps(trace)}
    if health.verdict != CANNOT_CONCLUDE:
        said = answers(windows.diagnose(trace), program_of(trace))
        best = said["findings"][0].id if said["findings"] else None
        shown |= {
            "breakdown": run_breakdown(trace),
            "verdict": run_verdict(trace),
            "next_command": f"pinchpoint explain {best}" if best else None,
            **said,
        }
    report = _facts(trace, health, detailed)
    return replace(report, tables=run_tables(trace) | report.tables, **shown)


def _queue(trace: Trace) -> QueueInfo | None:
    from pinchpoint.analysis.time.queue_over_time import queue_over_time

    found = queue_over_time(trace)
    if found is None:
        return None
    # asdict copies each of its 240 numbers: 1.1 ms, of 20 that a small recording takes
    return QueueInfo(**{name: getattr(found, name) for name in QueueInfo.__struct_fields__})


def _memory(trace: Trace) -> str | None:
    """What to ask next about a memory snapshot in which nothing is found."""
    if trace.snapshot is None or trace.device_ops is not None or trace.host_ops is not None:
        return None
    return f"pinchpoint memory {shlex.quote(trace.source.path)}"


def _all_ranks(trace: Trace) -> str | None:
    """What to ask next about one rank in which nothing is found; None where there are no others."""
    from pinchpoint.analysis.ranks.accounting import one_of_many

    if one_of_many(trace) is None:
        return None
    path = Path(trace.source.path)
    from pinchpoint.importers.ranks.files import command_for_all_ranks

    return command_for_all_ranks(path) if trace.source.path and path.exists() else None


def _facts(trace: Trace, health: Health, detailed: bool, **conclusions: Any) -> Report:
    return Report(
        source=_source(trace),
        health=health,
        steps=_steps(trace),
        device=_device(trace),
        devices=tuple(OneDeviceInfo(**asdict(device)) for device in each_device(trace)),
        processes=tuple(_process(part) for part in processes(trace)),
        serving=_serving(trace),
        kv_cache=_kv_cache(trace),
        tables=_sums(trace) | (_tables(trace) if detailed else {}),
        roofline=_roofline(trace) if detailed else None,
        run=run_info(trace),
        **conclusions,
    )


def _tables(trace: Trace) -> dict[str, ResultTable]:
    from pinchpoint.report.tables.build import tables

    named = windows.names_of(trace)
    if named is trace:
        return tables(trace)
    lent = {
        id_: replace(table, clock=WITH_NAMES) if table.clock == AS_RECORDED else table
        for id_, table in tables(named).items()
    }
    return lent | tables(trace)


def _sums(trace: Trace) -> dict[str, ResultTable]:
    """What a file of sums says, which has no timeline."""
    if trace.device_ops is not None or trace.api_calls is not None:
        return {}
    return {
        f"sums-{number}": ResultTable(
            id=f"sums-{number}",
            title=table.title or "as the file says",
            columns=tuple(TableColumn(id=name, label=name) for name in table.columns),
            rows=table.rows[:_MOST_SUMS],
            rows_left_out=max(len(table.rows) - _MOST_SUMS, 0),
        )
        for number, table in enumerate(trace.summaries, 1)
    }


_MOST_SUMS = 1000  # rows of one table; the command kernels has all
_MOST_ROUNDS = 1000  # a few seconds of decoding; the kinds count all


def _serving(trace: Trace) -> ServingInfo | None:
    found = serving(trace)
    if found is None:
        return None
    return ServingInfo(
        engine=found.engine,
        kinds=tuple(RoundsInfo(**asdict(kind)) for kind in found.kinds),
        between_ns=found.between_ns,
        rounds=tuple(RoundInfo(**asdict(one)) for one in found.rounds[:_MOST_ROUNDS]),
    )


def _kv_cache(trace: Trace) -> KvCacheInfo | None:
    found = kv_cache(trace)
    if found is None:
        return None
    spec = spec_of(trace)
    least = None
    if found.read_bytes is not None and spec is not None and spec.memory_bytes_per_s:
        least = round(found.read_bytes / spec.memory_bytes_per_s * 1e9)
    return KvCacheInfo(**asdict(found), least_ns=least)


_MOST_POINTS = 60  # of the roofline, in a report about everything


def _process(part: ProcessPart) -> ProcessInfo:
    devices, together = each_device(part.trace), device_activity(part.trace)
    return ProcessInfo(
        process=part.process,
        devices=tuple(one.device for one in devices),
        kernels=sum(one.kernels for one in devices),
        busy_ns=together.busy_ns,
    )


def _roofline(trace: Trace) -> "RooflineDocument | None":
    """None where nothing ran whose FLOPs or bytes are known."""
    from pinchpoint.report.documents.roofline import roofline_document

    document = roofline_document(trace, _MOST_POINTS)
    known = any(point.bound is not None for point in document.points)
    return document if known or document.utilisation is not None else None


def _source(trace: Trace) -> SourceInfo:
    tables = (trace.host_ops, trace.api_calls, trace.device_ops)
    from pinchpoint.analysis.ranks.accounting import one_of_many

    return SourceInfo(
        path=_text(trace.source.path),
        format=trace.source.format,
        recorder=trace.source.recorder,
        recorder_version=trace.source.recorder_version,
        producer=trace.source.producer,
        devices=_devices(trace),
        events=sum(len(table) for table in tables if table is not None),
        rank=trace.rank,
        world_size=trace.world_size,
        one_of=one_of_many(trace),
    )


def _devices(trace: Trace) -> tuple[str, ...]:
    """The devices that did something; files often list every device of the machine."""
    if trace.device_ops is None:
        sampled = trace.counters is not None and trace.host_ops is None
        profiled = trace.devices if trace.kernel_counters is not None or sampled else ()
        return tuple(device.name or f"device {device.number}" for device in profiled)
    names = {device.number: device.name for device in trace.devices}
    used = distinct(trace.device_ops["device"]).tolist()
    return tuple(names.get(number) or f"device {number}" for number in used)


def _device(trace: Trace) -> DeviceInfo | None:
    ops = trace.device_ops
    if ops is None or not len(ops):
        return None
    did = device_activity(trace)
    count = {kind: int(np.count_nonzero(ops["kind"] == kind)) for kind in DeviceKind}
    return DeviceInfo(
        span_ns=did.span_ns,
        busy_ns=did.busy_ns,
        idle_ratio=did.idle_ratio,
        kernels=count[DeviceKind.KERNEL] + count[DeviceKind.COLLECTIVE],
        collectives=count[DeviceKind.COLLECTIVE],
        copies=count[DeviceKind.COPY],
        memsets=count[DeviceKind.MEMSET],
    )


def _text(path: str | Path) -> str:
    """A path as valid Unicode; a file's name may be any bytes."""
    return said(str(path))


_WITH_CALLS = (
    "hardly any device operation was recorded, and of the program on the host nothing but its"
    " calls to the device's runtime"
)


def _health(trace: Trace) -> Health:
    table = trace.health
    facts = []
    for row in range(0 if table is None else len(table)):
        assert table is not None
        at_ns = table.value("time_ns", row)
        facts.append(
            HealthFact(
                id=trace.text(table, "fact", row) or "",
                severity=Severity(int(table["severity"][row])).name.lower(),
                count=int(table["count"][row]),
                detail=trace.text(table, "detail", row) or "",
                at_ns=None if at_ns is None else int(at_ns),
            )
        )
    if says_too_little(trace):
        has_calls = trace.api_calls is not None and len(trace.api_calls)
        said = _WITH_CALLS if has_calls else FACTS["too-little"].sentence
        facts.append(HealthFact(id="too-little", severity="fatal", count=1, detail=said))
    elif few := too_few_operations(trace):
        detail = f"only {few} device operation{'s' if few > 1 else ''}: too little for a verdict"
        facts.append(HealthFact(id="too-little", severity="warning", count=few, detail=detail))
    severities = {fact.severity for fact in facts}
    if "fatal" in severities:
        return Health(verdict=CANNOT_CONCLUDE, facts=tuple(facts), record=_record(facts))
    return Health(verdict="limited" if "warning" in severities else "good", facts=tuple(facts))


def _why_unknown(trace: Trace) -> str | None:
    """Why the cost of recording is not known; None where it is."""
    why = why_uncalibrated(trace)
    return why and "; ".join(filter(None, (why, why_no_calls(trace))))


def _record(facts: list[HealthFact]) -> str:
    fatal = (FACTS[f.id].record for f in facts if f.severity == "fatal" and f.id in FACTS)
    return "; ".join(dict.fromkeys(filter(None, fatal))) or _RECORD_AGAIN


def _before(trace: Trace) -> BeforeInfo | None:
    found = before_what_is_judged(trace)
    return None if found is None else BeforeInfo(**asdict(found))


def _steps(trace: Trace) -> StepsInfo:
    found = steps(trace)
    lasting = found.end_ns - found.start_ns
    timed = timed_by_run(trace)
    unknown = None if timed else _why_unknown(trace)
    known = unknown is None
    predicted = usual_step_ns(trace) if known else None
    return StepsInfo(
        how=found.how,
        turns_at=trace.run.turns_at if trace.run and found.how == "marker" else None,
        basis=found.basis,
        confidence=found.confidence,
        count=0 if found.how == "none" else len(found),
        duration_ns=tuple(found.durations_ns.tolist()),
        numbers=tuple(found.number[found.complete].tolist()),
        kind_of=kind_of_steps(trace),
        before=_before(trace),
        typical_ns=found.typical_ns,
        spread_ns=found.spread_ns,
        outliers=tuple(
            {"step": int(found.number[i]), "duration_ns": int(lasting[i])} for i in found.outliers
        ),
        unprofiled_ns_predicted=predicted,
        unprofiled_ns_range=(usual_range_ns(trace) or corrected_range_ns(trace)) if known else None,
        unprofiled_not_closer=why_not_closer(trace) if known else None,
        unprofiled_how=how_known(trace)
        if predicted is not None
        else unknown and NOT_CORRECTED + unknown,
        **launch_fields(trace),
        **mean_fields(trace),
    )
