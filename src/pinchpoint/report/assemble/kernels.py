"""Profiled launches as one document: facts, what bounds each, its issues, marks, NVIDIA's word.

Of a recording without counters it is the table of its kernels, and how to record counters.
"""

from shlex import quote
from typing import Any

import msgspec

from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.analysis.limits.counter_facts import KernelFacts
from pinchpoint.analysis.limits.counter_issues import Examined, examined_launches
from pinchpoint.analysis.limits.counter_marks import marks
from pinchpoint.analysis.limits.counters import profiled_time_ns
from pinchpoint.diagnosis.registry import may_be_counted
from pinchpoint.json_text import indented, said
from pinchpoint.report.documents.report import ResultTable
from pinchpoint.report.plain import plain
from pinchpoint.report.tables.build import kernel_table
from pinchpoint.trace import Trace

SCHEMA = "pinchpoint.kernels/1"
_LONGEST_SENTENCE = 600  # characters: a long sentence stays whole, a hostile name does not


class IssueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a launch suffers from or is bound by; ``id`` is the rule that explains it."""

    id: str  # of the rule: pinchpoint explain ID
    text: str  # a few words
    value: float  # in the unit beside it
    unit: str  # %, ratio, blocks, …
    won_ratio: float | None  # of the time, at most; null: nobody can say


class MarkInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One metric with its mark: good, fair, poor, or null where it does not matter."""

    metric: str  # its name
    value: float | None  # null: not collected
    unit: str  # of the value
    mark: str | None  # good, fair, poor, null
    good: str  # from where it is good
    poor: str  # from where it is poor


class SaidInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What one of NVIDIA's own rules said."""

    rule: str  # its name
    section: str  # of NVIDIA's report
    kind: str  # OPT, WRN, INF
    text: str  # NVIDIA's words
    speedup_kind: str | None  # local or global
    speedup_percent: float | None  # as NVIDIA estimates it


class LaunchInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One profiled launch. Nulls were not collected."""

    number: int  # in the file
    name: str  # for short
    full_name: str  # as recorded
    grid: tuple[int, int, int] | None  # blocks
    block: tuple[int, int, int] | None  # threads
    time_ns: int | None  # under the counters' profiler
    timeline_ns: int | None  # of the kernels that it stands for, where a timeline is joined
    bound: str | None  # memory or compute: the roof above it
    how: str  # why the bound is that one
    roof_ratio: float | None  # reached of that roof
    issues: tuple[IssueInfo, ...]  # what holds it back
    marks: tuple[MarkInfo, ...]  # good, fair or poor
    facts: dict[str, Any]  # what the counters say, by name
    stalls: dict[str, float]  # cycles between two instructions of a warp, by reason
    limiters: tuple[str, ...]  # of the occupancy
    nvidia: tuple[SaidInfo, ...]  # what NVIDIA's rules say


class KernelsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All profiled launches, longest first; or the kernels of a timeline."""

    schema: str = SCHEMA  # this name and version
    path: str  # of the recording
    device: str | None  # as the driver names it
    launches: tuple[LaunchInfo, ...]  # longest first
    kernels: ResultTable | None = None  # of a timeline
    record: str | None = None  # how to record counters, where there are none
    summaries: tuple[dict[str, Any], ...] = ()  # tables of nsys stats


def kernels_document(trace: Trace) -> KernelsDocument:
    """The document of one recording."""
    examined = sorted(examined_launches(trace), key=lambda e: -(e.facts.duration_ns or 0.0))
    timeline = trace.device_ops is not None and len(trace.device_ops) > 0
    record = _how_to_count(trace) if timeline and not examined and may_be_counted(trace) else None
    return KernelsDocument(
        path=said(str(trace.source.path)),
        device=next((plain(d.name) for d in trace.devices if d.name), None),
        launches=tuple(_launch(trace, e) for e in examined),
        kernels=kernel_table(trace) if timeline else None,
        record=record,
        summaries=tuple({"columns": s.columns, "rows": s.rows} for s in trace.summaries),
    )


def _how_to_count(trace: Trace) -> str:
    """The command that profiles the heaviest kernels; a run folder knows its program."""
    program = "" if trace.run is not None else " COMMAND"
    return f"pinchpoint ncu {quote(str(trace.source.path))}{program}"


def encode_kernels(document: KernelsDocument) -> bytes:
    """The document as JSON."""
    return indented(document)


def _launch(trace: Trace, examined: Examined) -> LaunchInfo:
    launch, facts = examined.launch, examined.facts
    return LaunchInfo(
        number=launch.number,
        name=plain(short_kernel_name(launch.name)),
        full_name=plain(launch.name, _LONGEST_SENTENCE),
        grid=launch.grid,
        block=launch.block,
        time_ns=None if facts.duration_ns is None else round(facts.duration_ns),
        timeline_ns=profiled_time_ns(trace, launch),
        bound=examined.point.bound,
        how=examined.point.how,
        roof_ratio=examined.point.roof_ratio,
        issues=tuple(
            IssueInfo(id=i.id, text=i.text, value=i.value, unit=i.unit, won_ratio=i.won_ratio)
            for i in examined.issues
        ),
        marks=tuple(
            MarkInfo(
                metric=m.metric, value=m.value, unit=m.unit, mark=m.mark, good=m.good, poor=m.poor
            )
            for m in marks(examined)
        ),
        facts=_facts(facts),
        stalls=dict(facts.stalls),
        limiters=facts.limiters,
        nvidia=tuple(
            SaidInfo(
                rule=said.rule,
                section=plain(said.section),
                kind=said.kind,
                text=plain(said.text, _LONGEST_SENTENCE),
                speedup_kind=said.speedup_kind,
                speedup_percent=said.speedup_percent,
            )
            for said in launch.rules
        ),
    )


def _facts(facts: KernelFacts) -> dict[str, Any]:
    """The plain numbers; mappings have fields of their own in the document."""
    found: dict[str, Any] = {}
    for name in KernelFacts.__dataclass_fields__:
        value = getattr(facts, name)
        if name == "flops":
            found[name] = None if value is None else dict(value)
        elif value is None or isinstance(value, float):
            found[name] = value
    return found
