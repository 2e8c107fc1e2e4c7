"""The findings of the memory rules, ranked by bytes."""

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from pinchpoint.analysis.memory.growth import MATERIAL_BYTES_PER_STEP, Leak, growth
from pinchpoint.analysis.memory.history import recorded_histories
from pinchpoint.analysis.memory.pressure import pressure
from pinchpoint.analysis.memory.wording import place, size
from pinchpoint.diagnosis.engine import ask
from pinchpoint.diagnosis.rule import Finding, Location, Outcome
from pinchpoint.report.document import EvidenceItem, LocationInfo, NotCheckedItem
from pinchpoint.report.memory_document import MemoryFinding
from pinchpoint.trace import Trace

MEMORY_RULES = (
    "memory-fragmentation",
    "graph-retained",
    "eval-outputs-kept",
    "memory-leak",
    "eval-with-grad",
    "gradients-kept",
    "activation-memory",
    "optimizer-state-memory",
    "logits-materialised",
    "host-memory-growth",
)
MAJOR_RATIO = 0.1  # of the peak: such a finding is of high severity
_LEAKS = {"graph": "graph-retained", "results": "eval-outputs-kept", "other": "memory-leak"}


@dataclass(frozen=True)
class Said:
    """The answers of the memory rules."""

    findings: tuple[MemoryFinding, ...]
    not_checked: tuple[NotCheckedItem, ...]
    clear: tuple[str, ...]
    crashed: tuple[NotCheckedItem, ...]


def findings(trace: Trace) -> Said:
    """Ask the memory rules. A failed request comes first, then what frees most bytes."""
    outcomes = [ask(id_, _rule(id_), trace) for id_ in MEMORY_RULES]
    peak = max((h.replay.peak("requested").bytes for h in recorded_histories(trace)), default=0)
    failed = any(pressure(trace, h).failure is not None for h in recorded_histories(trace))
    found = [(o.id, f) for o in outcomes if o.answer == "found" for f in o.findings]
    found.sort(key=lambda one: (not _explains(one[0], failed), -(one[1].saving_bytes or 0)))
    return Said(
        findings=(
            *(_item(id_, f, peak) for id_, f in found),
            *_negligible(trace),
        ),
        not_checked=tuple(_why(o) for o in outcomes if o.answer == "not checked"),
        clear=tuple(o.id for o in outcomes if o.answer == "clear"),
        crashed=tuple(_why(o) for o in outcomes if o.answer == "crashed"),
    )


def _rule(id_: str) -> ModuleType:
    return import_module(f"pinchpoint.diagnosis.rules.{id_.replace('-', '_')}")


def _explains(id_: str, failed: bool) -> bool:
    causes = ("activation-memory", "optimizer-state-memory", "logits-materialised")
    return failed and id_ in causes


def _item(id_: str, found: Finding, peak: int) -> MemoryFinding:
    stake = found.saving_bytes or 0
    return MemoryFinding(
        id=id_,
        summary=found.summary,
        evidence=tuple(
            EvidenceItem(what=e.what, value=e.value, unit=e.unit, at_ns=e.at_ns, name=e.name)
            for e in found.evidence
        ),
        saving_bytes=found.saving_bytes,
        location=None if found.location is None else _location(found.location),
        fix=found.fix,
        hint=found.hint,
        confirm=found.confirm,
        consequence=found.consequence,
        confidence=found.confidence,
        severity="high" if stake >= MAJOR_RATIO * peak else "medium",
    )


def _location(spot: Location) -> LocationInfo:
    return LocationInfo(
        file=spot.file,
        line=spot.line,
        function=spot.function,
        module=spot.module,
        operator=spot.operator,
    )


def _negligible(trace: Trace) -> list[MemoryFinding]:
    """Leaks too small to matter: said, so that nobody looks for them."""
    out = []
    for history in recorded_histories(trace):
        for leak in growth(history).leaks:
            if leak.bytes_per_step < MATERIAL_BYTES_PER_STEP:
                out.append(_small_leak(leak))
    return out


def _small_leak(leak: Leak) -> MemoryFinding:
    spot = leak.place
    return MemoryFinding(
        id=_LEAKS[leak.kind],
        summary=(
            f"Each step leaves {size(leak.allocated_per_step)} behind, through {place(spot)}:"
            " negligible"
        ),
        evidence=(
            EvidenceItem(what="kept per step", value=leak.bytes_per_step, unit="bytes"),
            EvidenceItem(
                what="kept per step as allocated", value=leak.allocated_per_step, unit="bytes"
            ),
        ),
        saving_bytes=leak.total_bytes,
        location=spot
        and LocationInfo(file=spot.file, line=spot.line or None, function=spot.function),
        fix="Nothing to do, unless a run has millions of steps",
        severity="negligible",
    )


def _why(outcome: Outcome) -> NotCheckedItem:
    return NotCheckedItem(id=outcome.id, why=outcome.why, record=outcome.record)
