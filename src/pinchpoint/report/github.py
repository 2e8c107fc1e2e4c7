"""The report for a GitHub workflow: annotations in the log, Markdown for the job summary."""

from pinchpoint.diagnosis.finding import Finding
from pinchpoint.report import markdown, terminal, wording
from pinchpoint.report.clean import clean
from pinchpoint.report.document import Report


def annotations(report: Report) -> str:
    """One workflow command a finding, placed on its source line where that is known."""
    safe = clean(report)
    if safe.health.verdict == wording.CANNOT_CONCLUDE:
        why = "; ".join(wording.fatal_facts(safe))
        return _command({"title": "Pinchpoint cannot conclude"}, why)
    return "".join(_annotation(safe, finding) for finding in safe.findings)


def log(report: Report, token: str) -> str:
    """The report as plain text, then its annotations.

    ``token`` is a word that nobody can guess: until the runner sees it again it takes nothing
    in the text for a command, whatever the names in the recording look like.
    """
    text = terminal.render(report)
    return f"::stop-commands::{token}\n{text}::{token}::\n{annotations(report)}"


def job_summary(report: Report) -> str:
    """Markdown for the file that ``GITHUB_STEP_SUMMARY`` names."""
    return markdown.render(report)


def _annotation(report: Report, finding: Finding) -> str:
    properties = {}
    if finding.location and finding.location.file:
        properties["file"] = finding.location.file
        if finding.location.line:
            properties["line"] = str(finding.location.line)
    properties["title"] = f"{finding.id}: {wording.gain(report, finding)}"
    return _command(properties, f"{finding.summary}\nfix: {finding.fix}")


def _command(properties: dict[str, str], message: str) -> str:
    said = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::warning {said}::{_data(message)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
