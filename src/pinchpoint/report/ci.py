"""For CI: annotations and outputs of a GitHub workflow, and JUnit XML.

GitHub shows at most ten annotations of a kind a step and drops the rest without a word, so the
worst ones go first and the last one says how many there are; the whole is in the summary.
"""

from xml.etree import ElementTree as Xml

from pinchpoint.diagnosis.finding import Finding
from pinchpoint.report import terminal
from pinchpoint.report.documents.clean import clean
from pinchpoint.report.documents.report import Report
from pinchpoint.report.pages.report import report_page
from pinchpoint.report.pages.result import Case, ResultPage, blocks
from pinchpoint.report.plain import plain
from pinchpoint.report.words import report as wording

MOST_ANNOTATIONS = 10  # of a kind that GitHub shows of a step; it drops the rest
_LEVELS = {"fail": "error", "inconclusive": "warning", "warn": "warning"}


def log(report: Report, token: str) -> str:
    """The report as plain text, then its annotations.

    ``token`` is a word that nobody can guess: until the runner sees it again it takes nothing
    in the text for a command, whatever the names in the recording look like.
    """
    return _quoted(terminal.render(report_page(report)), token) + annotations(report)


def result_log(result: ResultPage, token: str) -> str:
    """The same for a benchmark."""
    return _quoted(terminal.render(blocks(result)), token) + result_annotations(result)


def problem_lines(report: Report) -> str:
    """One line a finding as compilers write theirs, for the problem matchers of editors.

    ``FILE:LINE: warning: ID: gain: summary``; findings without a source line are left out.
    """
    safe = clean(report)
    lines = []
    for finding in safe.findings:
        at = finding.location
        if at is not None and at.file and at.line:
            file = finding.code.file if finding.code else at.file
            said = f"{finding.id}: {wording.gain(safe, finding)}: {finding.summary}"
            lines.append(f"{file}:{at.line}: warning: {said}\n")
    return "".join(lines)


def annotations(report: Report) -> str:
    """One workflow command a finding, placed on its source line where that is known."""
    safe = clean(report)
    if safe.health.verdict == wording.CANNOT_CONCLUDE:
        why = "; ".join(wording.fatal_facts(safe))
        return _command("warning", {"title": "Pinchpoint cannot conclude"}, why)
    return "".join(_annotation(safe, finding) for finding in safe.findings)


def result_annotations(result: ResultPage) -> str:
    """Workflow commands: errors for what fails, notices for what improved, warnings for the rest;
    nothing for another pass."""
    lines = []
    for level in ("error", "warning", "notice"):
        cases = [c for c in result.cases if _level(c) == level]
        shown = cases if len(cases) <= MOST_ANNOTATIONS else cases[: MOST_ANNOTATIONS - 1]
        lines += [_case(level, result, case) for case in shown]
        if len(cases) > len(shown):
            more = Case("more", cases[0].outcome, f"{len(cases) - len(shown)} more in the summary")
            lines.append(_case(level, result, more))
    return "".join(lines)


def _level(case: Case) -> str | None:
    return "notice" if case.improved else _LEVELS.get(case.outcome)


def result_outputs(result: ResultPage) -> str:
    """Lines for the file that ``GITHUB_OUTPUT`` names: ``verdict``, and how many measures are worse
    (``regressions``) and for certain better (``improvements``)."""
    failed = sum(1 for c in result.cases if c.outcome == "fail")
    better = sum(1 for c in result.cases if c.improved)
    counts = f"regressions={failed}\nimprovements={better}\n"
    return f"verdict={result.verdict or 'none'}\n{counts}"


def _quoted(text: str, token: str) -> str:
    return f"::stop-commands::{token}\n{text}::{token}::\n"


def _annotation(report: Report, finding: Finding) -> str:
    properties = {}
    if finding.location and finding.location.file:
        properties["file"] = finding.location.file
        if finding.location.line:
            properties["line"] = str(finding.location.line)
    properties["title"] = f"{finding.id}: {wording.gain(report, finding)}"
    return _command("warning", properties, f"{finding.summary}\nfix: {finding.fix}")


def _case(level: str, result: ResultPage, case: Case) -> str:
    place = result.place if case.outcome == "fail" else None
    where = {"file": place.file, "line": str(place.line)} if place else {}
    where["title"] = plain(f"{result.title}: {case.name}")
    return _command(level, where, plain(with_place(case, result), 1000))


def with_place(case: Case, result: ResultPage) -> str:
    """What failed, and where the commit changed it."""
    if case.outcome != "fail" or result.place is None:
        return case.message
    at = result.place
    owner = f"{at.function} ({at.file}:{at.line})" if at.function else f"{at.file}:{at.line}"
    return f"{case.message}; {owner}: {at.said}"


def _command(level: str, properties: dict[str, str], message: str) -> str:
    said = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{level} {said}::{_data(message)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# ------------------------------------------------------------------------------------------------
# JUnit XML: one test case a gated measure.
#
# JUnit has no word for "cannot tell": inconclusive is ``skipped`` with the reason, which every
# reader shows and none takes for a pass.


def junit(result: ResultPage) -> str:
    """An XML document."""
    counts = {o: sum(1 for c in result.cases if c.outcome == o) for o in ("fail", "inconclusive")}
    suite = Xml.Element(
        "testsuite",
        name=plain(result.title),
        tests=str(len(result.cases)),
        failures=str(counts["fail"]),
        errors="0",
        skipped=str(counts["inconclusive"]),
    )
    for case in result.cases:
        _add(suite, case, result)
    root = Xml.Element("testsuites", name="pinchpoint")
    root.append(suite)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(root, "unicode") + "\n"


def _add(suite: Xml.Element, case: Case, result: ResultPage) -> None:
    element = Xml.SubElement(
        suite, "testcase", classname=plain(result.title), name=plain(case.name)
    )
    message = plain(with_place(case, result), 1000)
    if case.outcome == "fail" and result.place is not None:  # as GitLab and Buildkite read them
        element.set("file", plain(result.place.file))
        element.set("line", str(result.place.line))
    if case.outcome == "fail":
        Xml.SubElement(element, "failure", message=message).text = message
    elif case.outcome == "inconclusive":
        Xml.SubElement(element, "skipped", message=message)
    else:
        Xml.SubElement(element, "system-out").text = message
