"""Memory with its pictures: a page of its own, or a view of the big report."""

from collections.abc import Sequence

from markupsafe import Markup

from pinchpoint.analysis.memory.history import History, heap, histories, stack_tree, timeline
from pinchpoint.frozen import dataclass
from pinchpoint.report import html
from pinchpoint.report.assemble.memory import memory_report
from pinchpoint.report.documents.memory import MemoryReport
from pinchpoint.report.documents.report import Report
from pinchpoint.report.pages.memory import Pictures, memory_blocks
from pinchpoint.report.plain import plain
from pinchpoint.report.svg.flame import flame, of_memory
from pinchpoint.report.svg.memory import curves, heap_map
from pinchpoint.trace import Trace

_SENTENCE_LIMIT = 600  # characters


@dataclass(frozen=True)
class MemoryView:
    """What the page shows of memory; ``alone`` where the recording is about nothing else."""

    verdict: str
    body: Markup
    source: str
    alone: bool


def memory_view(
    trace: Trace,
    report: Report,
    snapshot: Trace | None = None,
    known: MemoryReport | None = None,
) -> MemoryView | None:
    """The view of a snapshot beside the recording, or of the recording; None without either.

    ``known`` is what was found of it, where other questions than the usual were asked.
    """
    recorded = trace if snapshot is None else snapshot
    if not histories(recorded):
        return None
    found = known or memory_report(recorded)
    alone = snapshot is None and not report.source.events
    said = {finding.id for finding in report.findings} if snapshot is None else set()
    drawn = _pictures(recorded)
    blocks = memory_blocks(found, verbose=True, pictures=drawn, said=said, verdict=not alone)
    return MemoryView(
        verdict=plain(found.verdict, _SENTENCE_LIMIT),
        body=html.fragment(blocks),
        source="" if snapshot is None else plain(recorded.source.path.rpartition("/")[2]),
        alone=alone,
    )


def _pictures(trace: Trace) -> Sequence[Pictures]:
    return tuple(map(_of_device, histories(trace)))


def _of_device(history: History) -> Pictures:
    peak = history.peak_event
    return Pictures(
        curves=(lambda: curves(history, timeline(history))) if len(history.replay) else None,
        flame=lambda: (
            flame(of_memory(stack_tree(history, peak)), "Live bytes by stack", "bytes", "blocks")
            or ""
        ),
        heap=(lambda: heap_map(history, heap(history, peak))) if history.has_layout else None,
    )
