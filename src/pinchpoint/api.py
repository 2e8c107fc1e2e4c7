"""What programs and notebooks call: a path or a trace in, an answer that draws itself out.

Each answer is the document that ``--json`` prints, with a picture for Jupyter.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from pinchpoint.analysis.causal.profile import Causal
from pinchpoint.analysis.causal.profile import causal as causal_profile
from pinchpoint.compare.profiles import ProfileComparison
from pinchpoint.diagnosis.finding import Finding
from pinchpoint.importers import load
from pinchpoint.program.at_hand import with_code
from pinchpoint.report.assemble.report import diagnose as diagnose_trace
from pinchpoint.report.documents.memory import MemoryReport
from pinchpoint.report.documents.ranks import RanksReport
from pinchpoint.report.documents.report import Report
from pinchpoint.trace import Trace

if TYPE_CHECKING:
    from pinchpoint.jobs.run import Engine
    from pinchpoint.report.blocks import Page

Recording = Trace | str | Path  # a trace, or where one is


def diagnose(recording: Recording, *, detailed: bool = True) -> Report:
    """Where a step goes, what to change first, and what that gives.

    ``detailed``: with tables, and what only they show. Raises PinchpointError for a path that
    cannot be read. Findings show the program's own lines where these are on this machine.
    """
    _draw_documents()
    trace = _loaded(recording)
    report = diagnose_trace(trace, detailed=detailed)
    findings = Findings(with_code(report.findings, trace))
    findings.report = replace(report, findings=tuple(findings))
    return replace(report, findings=findings)


class Findings(tuple[Finding, ...]):
    """The causes, as cards in a notebook."""

    report: Report  # whose step their gains count from

    def _repr_html_(self) -> str:
        from pinchpoint.report.html_page.notebook import render_findings

        return render_findings(self.report)


class CausalTable(Causal):
    """The pieces of a step, drawn as tables in a notebook."""

    trace: Trace
    by: str | None

    def _repr_html_(self) -> str:
        from pinchpoint.report.documents.causal import causal_document
        from pinchpoint.report.pages.causal import causal_page

        return _drawn(causal_page(causal_document(self.trace, self.by)))


def causal(recording: Recording, by: str | None = None) -> CausalTable:
    """What the step would be without each of its pieces, or with it at the machine's limit.

    ``by`` is one way to cut the step: operator, kernel, line, function, module, phase, copy,
    collective or wait; ValueError for another one. Default: all of them.
    """
    trace = _loaded(recording).with_names
    found = causal_profile(trace, by)
    table = CausalTable(found.base_ns, found.pieces, found.why_not)
    object.__setattr__(table, "trace", trace)  # no part of the answer: only the picture needs it
    object.__setattr__(table, "by", by)
    return table


class Comparison(ProfileComparison, frozen=True, kw_only=True):
    """Two recordings, and whether the fix between them worked."""

    def _repr_html_(self) -> str:
        from pinchpoint.report.pages.compare import profiles_page
        from pinchpoint.report.pages.result import blocks

        return _drawn(blocks(profiles_page(self)))


def compare(before: Recording, after: Recording) -> Comparison:
    """What changed from one recording to the other, by how much, and did the fix work."""
    from pinchpoint.report.assemble.comparison import comparison

    _draw_documents()
    return Comparison(**_fields(comparison(_loaded(before), _loaded(after))))


class Memory(MemoryReport, frozen=True, kw_only=True):
    """Who holds the memory, what grows, what would save it."""

    def _repr_html_(self) -> str:
        from pinchpoint.report.pages.memory import memory_page

        return _drawn(memory_page(self))


def memory(recording: Recording) -> Memory:
    """The allocator's snapshot, the memory events of a trace, or those of a run folder."""
    from pinchpoint.report.assemble.memory import memory_report

    trace = _loaded(recording)
    if trace.run is not None and trace.run.memory is not None:
        trace = trace.run.memory
    return Memory(**_fields(memory_report(trace)))


def diagnose_ranks(places: Sequence[str | Path], engine: "Engine" = None) -> RanksReport:
    """All ranks of a job together: who holds up the others, and what its fixes would give.

    ``places`` are files, folders, globs or URLs; ``engine`` an Executor, or OnRay. Raises
    UsageError where they are not the ranks of one job.
    """
    from pinchpoint.jobs.run import diagnose_ranks as of_all

    _draw_documents()
    return of_all(places, engine)


def report(recording: Recording, output: str | Path = "report.html") -> Path:
    """Write the whole report as one HTML file, as ``pinchpoint report`` does; returns its path.

    Raises UsageError where that would replace a recording.
    """
    from pinchpoint.importers.last_resort import is_recording
    from pinchpoint.jobs.full_page import full_page, job_in
    from pinchpoint.replacing import check_free, replacing

    trace, path = _loaded(recording), Path(output)
    inputs = () if isinstance(recording, Trace) else (Path(recording),)
    file = inputs[0] if inputs else Path(str(trace.source.path))
    page = full_page(file, trace, diagnose(trace), job_in(file))
    content = page.encode("utf-8", "replace")
    check_free(path, content, inputs=inputs, is_recording=is_recording)
    with replacing(path) as beside:
        beside.write_bytes(content)
    return path


def _draw_documents() -> None:
    """Only in Jupyter: what draws takes its time to import."""
    if "IPython" in sys.modules:
        from pinchpoint.report.html_page.notebook import draw_documents

        draw_documents()


def _loaded(recording: Recording) -> Trace:
    return recording if isinstance(recording, Trace) else load(recording)


def _fields(document: Any) -> dict[str, Any]:
    fields: dict[str, Any] = asdict(document)
    return fields


def _drawn(page: "Page") -> str:
    from pinchpoint.report.html import in_notebook

    return in_notebook(page)
