"""Memory as a view of the big report."""

from dataclasses import dataclass

from markupsafe import Markup

from pinchpoint.analysis.memory.history import histories
from pinchpoint.report.document import Report
from pinchpoint.report.memory_build import memory_report
from pinchpoint.report.memory_html import render_fragment
from pinchpoint.report.plain import plain
from pinchpoint.trace import Trace

_SENTENCE_LIMIT = 600  # characters


@dataclass(frozen=True)
class MemoryView:
    """What the page shows of memory; ``alone`` where the recording is about nothing else."""

    verdict: str
    body: Markup
    source: str
    alone: bool


def memory_view(trace: Trace, report: Report, snapshot: Trace | None = None) -> MemoryView | None:
    """The view of a snapshot beside the recording, or of the recording; None without either."""
    recorded = trace if snapshot is None else snapshot
    if not histories(recorded):
        return None
    found = memory_report(recorded)
    alone = snapshot is None and not report.source.events
    said = {finding.id for finding in report.findings} if snapshot is None else set()
    return MemoryView(
        verdict=plain(found.verdict, _SENTENCE_LIMIT),
        body=Markup(render_fragment(recorded, found, said, verdict=not alone)),
        source="" if snapshot is None else plain(recorded.source.path.rpartition("/")[2]),
        alone=alone,
    )
