"""Findings as SARIF 2.1.0, so that code hosts show them at the source line."""

from pathlib import PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import quote

from pinchpoint.diagnosis.finding import Finding, Location
from pinchpoint.diagnosis.registry import page
from pinchpoint.json_text import indented, said
from pinchpoint.report.ci import with_place
from pinchpoint.report.documents.clean import clean
from pinchpoint.report.documents.report import Report
from pinchpoint.report.pages.result import ResultPage
from pinchpoint.report.plain import plain
from pinchpoint.report.words import report as wording

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(report: Report, version: str) -> bytes:
    """One run with one result a finding, each at its source line or else in the recording.

    ``version``: of Pinchpoint, which the run names as its tool.
    """
    safe = clean(report)
    ids = sorted({finding.id for finding in safe.findings})
    driver = {
        "name": "Pinchpoint",
        "version": version,
        "rules": [_rule(id_) for id_ in ids],
    }
    results = [_result(safe, finding, ids.index(finding.id)) for finding in safe.findings]
    document = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return indented(document)


def result_sarif(result: ResultPage, version: str) -> bytes:
    """A benchmark's failures, each at the line that the commit changed; without one, no place.

    ``version``: of Pinchpoint.
    """
    failed = [case for case in result.cases if case.outcome == "fail"]
    rules: list[dict[str, Any]] = [
        {"id": c.name, "shortDescription": {"text": f"{c.name} got worse"}} for c in failed
    ]
    driver = {"name": "Pinchpoint", "version": version, "rules": rules}
    results = []
    for number, case in enumerate(failed):
        said: dict[str, Any] = {
            "ruleId": case.name,
            "ruleIndex": number,
            "level": "error",
            "message": {"text": plain(with_place(case, result), 1000)},
        }
        at = result.place
        if at is not None:
            place = _place(Location(file=at.file, line=at.line))
            logical = [{"fullyQualifiedName": at.function}] if at.function else []
            where: dict[str, Any] = {"physicalLocation": place}
            said["locations"] = [where | ({"logicalLocations": logical} if logical else {})]
        results.append(said)
    return indented(
        {
            "$schema": SCHEMA,
            "version": "2.1.0",
            "runs": [{"tool": {"driver": driver}, "results": results}],
        }
    )


def _rule(id_: str) -> dict[str, Any]:
    text = page(id_) or id_
    return {
        "id": id_,
        "shortDescription": {"text": text.strip().partition("\n")[0]},
        "help": {"text": text},
    }


def _result(report: Report, finding: Finding, rule: int) -> dict[str, Any]:
    said = (finding.summary, wording.gain(report, finding), finding.fix and f"Fix: {finding.fix}")
    result: dict[str, Any] = {
        "ruleId": finding.id,
        "ruleIndex": rule,
        "level": "warning",
        "message": {"text": "\n".join(part for part in said if part)},
    }
    return result | {"locations": [_where(report, finding)]}


def _where(report: Report, finding: Finding) -> dict[str, Any]:
    """The source line; where the recording knows none, the recording, and what of it."""
    code, at = finding.code, finding.location
    if code is not None and at is not None:  # a path that the editor has open
        at = Location(file=code.file, line=at.line, function=at.function, module=at.module)
    place = _place(at) or {"artifactLocation": {"uri": _uri(report.source.path)}}
    names = [] if at is None else [at.function, at.module, at.operator]
    logical = [{"fullyQualifiedName": name} for name in names if name]
    return {"physicalLocation": place} | ({"logicalLocations": logical} if logical else {})


def _place(location: Location | None) -> dict[str, Any] | None:
    if location is None or location.file is None or location.file.startswith("<"):
        return None
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(location.file)}}
    if location.line is not None and location.line > 0:
        place["region"] = {"startLine": location.line}
    return place


def _uri(file: str) -> str:
    if PureWindowsPath(file).drive:
        return "file:///" + quote(PureWindowsPath(file).as_posix(), safe="/:")
    return ("file://" if PurePosixPath(file).is_absolute() else "") + quote(said(file))
