"""A page as JUnit XML: one test case a gated measure.

JUnit has no word for "cannot tell": inconclusive is ``skipped`` with the reason, which every
reader shows and none takes for a pass.
"""

from xml.etree import ElementTree as Xml

from pinchpoint.report.benchmarks.page import Case, Page
from pinchpoint.report.plain import plain


def render(page: Page) -> str:
    """An XML document."""
    counts = {o: sum(1 for c in page.cases if c.outcome == o) for o in ("fail", "inconclusive")}
    suite = Xml.Element(
        "testsuite",
        name=plain(page.title),
        tests=str(len(page.cases)),
        failures=str(counts["fail"]),
        errors="0",
        skipped=str(counts["inconclusive"]),
    )
    for case in page.cases:
        _add(suite, case, page)
    root = Xml.Element("testsuites")
    root.append(suite)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(root, "unicode") + "\n"


def _add(suite: Xml.Element, case: Case, page: Page) -> None:
    element = Xml.SubElement(suite, "testcase", classname=plain(page.title), name=plain(case.name))
    message = plain(case.message, 1000)
    if case.outcome == "fail":
        Xml.SubElement(element, "failure", message=message).text = message
    elif case.outcome == "inconclusive":
        Xml.SubElement(element, "skipped", message=message)
    else:
        Xml.SubElement(element, "system-out").text = message
