"""The findings of the memory rules, ranked by bytes."""

from dataclasses import dataclass

from pinchpoint.analysis.memory.growth import MATERIAL_BYTES_PER_STEP, Leak, growth
from pinchpoint.analysis.memory.history import recorded_histories
from pinchpoint.analysis.memory.shortage import place, pressure, size
from pinchpoint.diagnosis.finding import Evidence, Location, Unanswered, shared
from pinchpoint.diagnosis.registry import ask, rules
from pinchpoint.diagnosis.rule import About
from pinchpoint.report.assemble.findings import unanswered
from pinchpoint.report.documents.memory import MemoryFinding
from pinchpoint.trace import Trace

MAJOR_RATIO = 0.1  # of the peak: such a finding is of high severity


@dataclass(frozen=True)
class Said:
    """The answers of the memory rules."""

    findings: tuple[MemoryFinding, ...]
    not_checked: tuple[Unanswered, ...]
    clear: tuple[str, ...]
    crashed: tuple[Unanswered, ...]


def findings(trace: Trace) -> Said:
    """Ask the memory rules. A failed request comes first, then what frees most bytes."""
    asked = [known for known in rules().values() if known.rule.about is About.MEMORY]
    outcomes = [ask(known, trace) for known in asked]
    histories = recorded_histories(trace)
    major = MAJOR_RATIO * max((h.replay.peak("requested").bytes for h in histories), default=0)
    found = [
        MemoryFinding(
            **shared(f) | {"id": o.id},
            severity="high" if (f.saving_bytes or 0) >= major else "medium",
        )
        for o in outcomes
        for f in o.findings
    ]
    failed = any(pressure(trace, h).failure is not None for h in histories)
    first = {k.id for k in asked if failed and k.rule.explains_full_memory}
    found.sort(key=lambda f: (f.id not in first, -(f.saving_bytes or 0)))
    return Said(
        findings=(*found, *_negligible(trace)),
        not_checked=unanswered(outcomes, "not checked"),
        clear=tuple(o.id for o in outcomes if o.answer == "clear"),
        crashed=unanswered(outcomes, "crashed"),
    )


def _negligible(trace: Trace) -> list[MemoryFinding]:
    """Leaks too small to matter: said, so that nobody looks for them."""
    named_by = {known.rule.leak: id_ for id_, known in rules().items()}
    return [
        _small_leak(named_by[leak.kind], leak)
        for history in recorded_histories(trace)
        for leak in growth(history).leaks
        if leak.bytes_per_step < MATERIAL_BYTES_PER_STEP
    ]


def _small_leak(id_: str, leak: Leak) -> MemoryFinding:
    spot = leak.place
    return MemoryFinding(
        id=id_,
        summary=(
            f"Each step leaves {size(leak.allocated_per_step)} behind, through {place(spot)}:"
            " negligible"
        ),
        evidence=(
            Evidence("kept per step", leak.bytes_per_step, "bytes"),
            Evidence("kept per step as allocated", leak.allocated_per_step, "bytes"),
        ),
        saving_bytes=leak.total_bytes,
        location=spot and Location(spot.file, spot.line or None, spot.function),
        fix="Nothing to do, unless a run has millions of steps",
        severity="negligible",
    )
