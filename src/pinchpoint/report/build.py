"""From a trace to the one document: every analysis asked once, every rule run."""

from pathlib import Path

from pinchpoint.analysis.steps import Steps, steps
from pinchpoint.report.document import Health, HealthFact, Report, SourceInfo, StepsInfo
from pinchpoint.report.tables import tables
from pinchpoint.trace import Severity, Trace


def diagnose(trace: Trace) -> Report:
    """Everything that Pinchpoint has to say about one recording."""
    found = steps(trace)
    return Report(
        source=_source(trace),
        health=_health(trace),
        steps=_steps(found),
        tables=tables(trace),
    )


def _source(trace: Trace) -> SourceInfo:
    tables = (trace.host_ops, trace.api_calls, trace.device_ops)
    return SourceInfo(
        path=_text(trace.source.path),
        format=trace.source.format,
        producer=trace.source.producer,
        devices=tuple(d.name or f"device {d.number}" for d in trace.devices),
        events=sum(len(table) for table in tables if table is not None),
        rank=trace.rank,
        world_size=trace.world_size,
    )


def _text(path: str | Path) -> str:
    """A path as valid Unicode; a file's name may be any bytes."""
    return str(path).encode("utf-8", "replace").decode("utf-8")


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
    severities = {fact.severity for fact in facts}
    verdict = "limited" if "warning" in severities else "good"
    return Health(
        verdict="cannot conclude" if "fatal" in severities else verdict, facts=tuple(facts)
    )


def _steps(found: Steps) -> StepsInfo:
    lasting = found.end_ns - found.start_ns
    return StepsInfo(
        how=found.how,
        basis=found.basis,
        confidence=found.confidence,
        count=0 if found.how == "none" else len(found),
        duration_ns=tuple(found.durations_ns.tolist()),
        typical_ns=found.typical_ns,
        spread_ns=found.spread_ns,
        outliers=tuple(
            {"step": int(found.number[i]), "duration_ns": int(lasting[i])} for i in found.outliers
        ),
    )
