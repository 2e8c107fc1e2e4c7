"""Parts of a report in a notebook: the whole, its ladder of fixes, or one finding."""

from dataclasses import replace

from pinchpoint.diagnosis.finding import Finding
from pinchpoint.report.blocks import Block, FindingCard, Ladder, Page, Title
from pinchpoint.report.documents.clean import cleaned
from pinchpoint.report.documents.ladder import LadderInfo
from pinchpoint.report.documents.report import Health, Report, SourceInfo, StepsInfo
from pinchpoint.report.html import in_notebook
from pinchpoint.report.pages.ladder import ladder_block
from pinchpoint.report.pages.report import finding_block, report_page

ASKED_BY_JUPYTER = "_repr_html_"
MOST_FINDINGS = 5  # in one cell; the report has all


def render(report: Report) -> str:
    """What bounds the step, what to change, where the time goes, as a few lines of HTML."""
    kept: list[Block] = []
    for block in report_page(report).blocks:
        if not isinstance(block, FindingCard) or block.number <= MOST_FINDINGS:
            kept.append(_without_links(block))
    left_out = len(report.findings) - MOST_FINDINGS
    return in_notebook(Page(tuple(kept))) + (f"<p>and {left_out} more</p>" if left_out > 0 else "")


def render_ladder(ladder: LadderInfo) -> str:
    """The step after each change."""
    block = ladder_block(_alone(cleaned(ladder)))
    return in_notebook(
        Page((Title("ladder of fixes"), *(() if block is None else (_without_links(block),))))
    )


def render_finding(finding: Finding) -> str:
    """One finding with its evidence; its gain is that of the report around it."""
    safe = cleaned(finding)
    return in_notebook(Page((Title(safe.id), finding_block(_alone(None), safe, 1, verbose=True))))


def draw_documents() -> None:
    """Give the documents, which stand below any drawing, the method that Jupyter asks for."""
    for document, draw in (
        (Report, render),
        (LadderInfo, render_ladder),
        (Finding, render_finding),
    ):
        setattr(document, ASKED_BY_JUPYTER, draw)


def _without_links(block: Block) -> Block:
    """A cell has no anchors of its own."""
    if not isinstance(block, Ladder):
        return block
    return replace(block, rungs=tuple(replace(rung, id="") for rung in block.rungs))


def _alone(ladder: LadderInfo | None) -> Report:
    """A report that knows nothing else; the ladder says on which clock it is."""
    corrected = ladder is not None and ladder.recorded_base_ns not in (None, ladder.base_ns)
    return Report(
        source=SourceInfo(path="", format=""),
        health=Health(verdict="good"),
        steps=StepsInfo(
            how="none", unprofiled_ns_predicted=ladder.base_ns if ladder and corrected else None
        ),
        fix_ladder=ladder,
    )
