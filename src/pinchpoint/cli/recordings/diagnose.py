"""Where the time of a step goes, why, and what fixing it would give."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pinchpoint.cli.output import look, note, show, show_json
from pinchpoint.cli.page import NO_PAGE, Page
from pinchpoint.cli.parameter import Parameter
from pinchpoint.cli.recordings._answers import Answers, Asked, answers_of
from pinchpoint.cli.recordings._window import NO_WINDOW, Window
from pinchpoint.diagnosis.finding import Finding
from pinchpoint.errors import UsageError
from pinchpoint.report import Report
from pinchpoint.report.documents.clock import Clock, job_on_clock
from pinchpoint.report.documents.report import encode, encode_many
from pinchpoint.report.words.report import CANNOT_CONCLUDE
from pinchpoint.report.words.steps import base_ns

if TYPE_CHECKING:
    from pinchpoint.report.documents.ranks import RanksReport

# ------------------------------------------------------------------------------------------------
# ``--fail-over``: whether a report passes in an automatic check.


PASS, OVER, INCONCLUSIVE = 0, 1, 4


@dataclass(frozen=True)
class Ruling:
    """An exit code and the reason for it."""

    code: int
    why: str


def parse_gate(text: str | None) -> float | None:
    """A share of the step from ``5%`` or ``5``, both five percent; UsageError for anything else."""
    if text is None:
        return None
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent < 100:  # also refuses NaN
        raise UsageError(
            f"--fail-over {text}: not a share of the step", hint="for example: --fail-over 5%"
        )
    return percent / 100


def judge(report: Report, limit_ratio: float) -> Ruling:
    """Fails if fixing one finding would save more than ``limit_ratio`` of the step."""
    base = base_ns(report)
    if report.health.verdict == CANNOT_CONCLUDE or not base:
        return Ruling(INCONCLUSIVE, "gate: inconclusive, the recording forbids a judgement")
    return _ruling(base, report.findings, limit_ratio)


def judge_job(job: "RanksReport", limit_ratio: float) -> Ruling:
    """The same for the ranks of a job together."""
    base = job.steps.unprofiled_ns_predicted or job.steps.typical_ns
    if not base:
        return Ruling(INCONCLUSIVE, "gate: inconclusive, no step of the job was completed")
    return _ruling(base, job.findings, limit_ratio)


def _ruling(base: int, findings: Sequence[Finding], limit_ratio: float) -> Ruling:
    over = []
    for finding in findings:
        saved = finding.cost_ns_per_step
        if finding.predicted_step_ns is not None:
            saved = base - finding.predicted_step_ns
        if saved is not None and saved > limit_ratio * base:
            over.append(f"{finding.id} ({100 * saved / base:.1f} %)")
    limit = f"{100 * limit_ratio:g} % of the step"
    if over:
        return Ruling(OVER, f"gate: failed, over {limit}: {', '.join(over)}")
    return Ruling(PASS, f"gate: passed, no finding is worth more than {limit}")


Format = Literal["terminal", "json", "markdown", "github", "lines"]
Switch = Parameter(negative="")


@Parameter(name="*")
@dataclass(frozen=True)
class Shape:
    """How the answer looks.

    Parameters
    ----------
    json
        One JSON document on standard output and nothing else.
    markdown
        Markdown, as GitHub shows it.
    format
        terminal, json, markdown, github (annotations, and the job summary) or lines (file:line:
        warning, for editors).
    clock
        unprofiled: times without the profiler, where these are known; recorded: as in the file.
    max_chars
        With --json, of one file: cut the document to this many characters, tables first.
    sort
        Show all tables, each that has this column in its order: device_self_ns, flops, calls, …
    """

    json: Annotated[bool, Switch] = False
    markdown: Annotated[bool, Switch] = False
    format: Format | None = None
    clock: Clock = "unprofiled"
    max_chars: int | None = None
    sort: str | None = None


TERMINAL = Shape()


def command(
    *files: Path,
    shape: Shape = TERMINAL,
    page: Page = NO_PAGE,
    part: Window = NO_WINDOW,
    fail_over: str | None = None,
    verbose: Annotated[bool, Switch] = False,
) -> int:
    """Diagnose recordings: where a step goes, ranked findings, predicted gains.

    Exit code: 0; 1 if a finding is over the gate; 2 if a file cannot be read; 4 if the gate
    cannot be judged.

    Parameters
    ----------
    files
        Profiles of any known format (pinchpoint formats lists them), packed or not; archives,
        folders and URLs of them.
    fail_over
        Exit with 1 if fixing a finding would save more than this share of the step, such as 5%.
    verbose
        Also show evidence, tables and why a cause was not checked.
    """
    chosen = _one_format(shape.json, shape.markdown, shape.format)
    max_chars = shape.max_chars
    limit = parse_gate(fail_over)
    if not files:
        raise UsageError("which recording?", hint="pinchpoint diagnose FILE")
    if page.html and len(files) > 1:
        raise UsageError("--html writes the page of one recording", hint="name one file")
    if max_chars is not None and (chosen != "json" or len(files) > 1):
        raise UsageError("--max-chars cuts the JSON of one file", hint="add --json")
    verbose = verbose or shape.sort is not None
    detailed = chosen != "terminal" or verbose or page.html is not None
    found = answers_of(files, Asked(part, detailed))
    if shape.sort is not None:
        found = found.sorted_by(shape.sort)
    if page.redact:
        found = found.redacted(files)
    reports, jobs = found.reports, found.jobs
    if max_chars is not None and reports:
        from pinchpoint.report.documents.fit import fitted

        show_json(fitted(reports[0], max_chars))
    else:
        shown = found.within if found.within and chosen == "terminal" else found
        beside = [] if chosen == "json" and found.one_run else shown.jobs
        present(shown.reports, chosen, beside, verbose=verbose, clock=shape.clock)
    _write_page(page, found, files)
    rulings = [] if limit is None else [judge(report, limit) for report in reports]
    if limit is not None and jobs:  # what one rank could save, the job may not
        rulings = [judge_job(job, limit) for job in jobs]
    for ruling in rulings:
        note(ruling.why)
    return found.code or worst(rulings)


def _write_page(page: Page, found: Answers, files: Sequence[Path]) -> None:
    if not page.html:
        return

    if len(found.reports) + len(found.jobs) > 1 and not found.one_run:
        raise UsageError("--html writes the page of one recording", hint="name one file")
    report = found.reports[0] if found.reports else None
    job = found.jobs[0] if found.jobs else None
    from pinchpoint.jobs.full_page import full_page

    text = full_page(files[0], found.trace, report, job, redact=page.redact, note=note)
    page.write(text, files)


def _one_format(json: bool, markdown: bool, format: Format | None) -> Format:
    wanted: list[Format] = [format] if format else []
    wanted += ["json"] if json else []
    wanted += ["markdown"] if markdown else []
    if len(set(wanted)) > 1:
        raise UsageError(f"choose one of {' and '.join(wanted)}", hint="pinchpoint diagnose --help")
    return wanted[0] if wanted else "terminal"


def present(
    reports: Sequence[Report],
    chosen: Format,
    jobs: "Sequence[RanksReport]" = (),
    *,
    verbose: bool = False,
    clock: Clock = "unprofiled",
) -> None:
    """Write the reports to standard output, those about jobs first; JSON has both clocks."""
    if chosen == "json":
        alone = len(reports) == 1 and not jobs
        text = encode(reports[0]) if alone else _together(reports, jobs)
        show_json(text)
    elif chosen == "markdown":
        from pinchpoint.report import markdown
        from pinchpoint.report.pages.report import report_page

        pages = [report_page(report, verbose=True, clock=clock) for report in reports]
        show("\n".join(map(markdown.render, pages)))
    elif chosen == "github":
        _present_to_github(reports)
    elif chosen == "lines":
        from pinchpoint.report.ci import problem_lines

        show("".join(map(problem_lines, reports)))
    else:
        from pinchpoint.report import terminal
        from pinchpoint.report.pages.report import report_page

        pages = [report_page(report, verbose=verbose, clock=clock) for report in reports]
        if jobs:
            from pinchpoint.report.pages.ranks import ranks_page

            timed = (job_on_clock(job, clock) for job in jobs)
            pages = [*(ranks_page(job, verbose=verbose) for job in timed), *pages]
        show("\n".join(terminal.render(page, look()) for page in pages))


def _together(reports: Sequence[Report], jobs: "Sequence[RanksReport]") -> bytes:
    from pinchpoint.report.documents.ranks import encode_ranks

    return encode_many(reports, [encode_ranks(job) for job in jobs])


def _present_to_github(reports: Sequence[Report]) -> None:
    import secrets

    from pinchpoint.report import ci, markdown

    for report in reports:
        show(ci.log(report, token=secrets.token_hex()))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        from pinchpoint.report.pages.report import report_page

        try:
            with Path(summary).open("a", encoding="utf-8") as file:
                pages = [report_page(report, verbose=True) for report in reports]
                file.writelines(map(markdown.render, pages))
        except OSError as error:
            note(f"note: no job summary: {error}")


def worst(rulings: Sequence[Ruling]) -> int:
    """The exit code of several rulings: a failure beats doubt, doubt beats a pass."""
    codes = [ruling.code for ruling in rulings]
    return 1 if 1 in codes else max(codes, default=0)
