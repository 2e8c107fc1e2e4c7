"""A page as JUnit XML: one test case a gated measure.

JUnit has no word for "cannot tell": inconclusive is ``skipped`` with the reason, which every
reader shows and none takes for a pass.
"""

from xml.etree import ElementTree as Xml

from pinchpoint.report.pages.result import Case, ResultPage
from pinchpoint.report.plain import plain


def render(result: ResultPage) -> str:
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
    root = Xml.Element("testsuites")
    root.append(suite)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(root, "unicode") + "\n"


def _add(suite: Xml.Element, case: Case, result: ResultPage) -> None:
    element = Xml.SubElement(
        suite, "testcase", classname=plain(result.title), name=plain(case.name)
    )
    message = plain(case.message, 1000)
    if case.outcome == "fail":
        Xml.SubElement(element, "failure", message=message).text = message
    elif case.outcome == "inconclusive":
        Xml.SubElement(element, "skipped", message=message)
    else:
        Xml.SubElement(element, "system-out").text = message
