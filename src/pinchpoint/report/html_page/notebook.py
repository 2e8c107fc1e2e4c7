"""Parts of a report in a notebook: the whole, its ladder of fixes, or one finding."""

from dataclasses import replace
from typing import Protocol

from pinchpoint.compare.fix import FixOutcome
from pinchpoint.diagnosis.finding import Finding
from pinchpoint.report import terminal
from pinchpoint.report.blocks import Block, FindingCard, First, Ladder, Page, Text, Title
from pinchpoint.report.documents.clean import clean, cleaned
from pinchpoint.report.documents.ladder import LadderInfo
from pinchpoint.report.documents.ranks import RanksReport
from pinchpoint.report.documents.report import Health, Report, SourceInfo, StepsInfo
from pinchpoint.report.html import in_notebook
from pinchpoint.report.pages.fix import fix_ladder
from pinchpoint.report.pages.ladder import ladder_block
from pinchpoint.report.pages.ranks import ranks_page
from pinchpoint.report.pages.report import finding_block, report_page
from pinchpoint.report.quantity import duration, span, time_unit
from pinchpoint.report.words.fix import fix_sentence, gone_words

ASKED_BY_JUPYTER = "_repr_html_"
ASKED_BY_IPYTHON = "_repr_pretty_"  # in a terminal, and beside the HTML
MOST_FINDINGS = 5  # in one cell; the report has all


def render(report: Report) -> str:
    """What bounds the step, what to change, where the time goes, as a few lines of HTML."""
    kept: list[Block] = []
    for block in report_page(report, listed_by="report.not_checked").blocks:
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


def render_findings(report: Report) -> str:
    """All findings with their evidence."""
    safe = clean(report)
    cards = (finding_block(safe, f, n, verbose=True) for n, f in enumerate(safe.findings, 1))
    return in_notebook(Page((Title("findings"), *cards)))


def render_ranks(report: RanksReport) -> str:
    """What holds up a job."""
    blocks = ranks_page(report).blocks
    alone = (b.ladder if isinstance(b, First) else b for b in blocks)
    return in_notebook(Page(tuple(_without_links(block) for block in alone if block is not None)))


def render_fix(outcome: FixOutcome) -> str:
    """Whether a fix worked."""
    said = Text(fix_sentence(outcome), "strong")
    return in_notebook(Page((Title(gone_words(outcome)), said, fix_ladder(outcome))))


def render_finding(finding: Finding) -> str:
    """One finding with its evidence, and the step after it; today's is in the report around it."""
    safe = cleaned(finding)
    card = finding_block(_alone(None), safe, 1, verbose=True)
    if safe.predicted_step_ns is not None:
        after = duration(safe.predicted_step_ns)
        unit = time_unit(safe.predicted_step_ns)
        between = safe.predicted_range_ns
        spread = f" ({span(*between, unit)})" if between else ""
        card = replace(card, gain=f"{after} a step after it{spread}")
    return in_notebook(Page((Title(safe.id), card)))


def draw_documents() -> None:
    """Give the documents, which stand below any drawing, the method that Jupyter asks for."""
    for document, draw in (
        (Report, render),
        (LadderInfo, render_ladder),
        (Finding, render_finding),
        (RanksReport, render_ranks),
        (FixOutcome, render_fix),
    ):
        setattr(document, ASKED_BY_JUPYTER, draw)
    setattr(Report, ASKED_BY_IPYTHON, _print_report)
    setattr(RanksReport, ASKED_BY_IPYTHON, _print_ranks)


class _Printer(Protocol):
    """What IPython gives."""

    def text(self, text: str) -> None:
        """Prints."""


def _print_report(report: Report, printer: _Printer, cycle: bool) -> None:
    """What the command prints; the fields of a document fill pages."""
    printer.text(terminal.render(report_page(report, listed_by="report.not_checked")))


def _print_ranks(report: RanksReport, printer: _Printer, cycle: bool) -> None:
    printer.text(terminal.render(ranks_page(report)))


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
