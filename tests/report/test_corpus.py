"""Recordings of all kinds are diagnosed and drawn in every format."""

import os
from pathlib import Path

import pytest

import pinchpoint as pp
from pinchpoint.report import ci, decode, encode, markdown, terminal
from pinchpoint.report.html_page import static
from pinchpoint.report.pages.report import report_page
from pinchpoint.report.words.report import top_parts

pytestmark = pytest.mark.corpus

CORPUS = os.environ.get("PINCHPOINT_CORPUS")
TO_COPY = (" " * 12, "   confirm", "     record: ", "Next: ")  # commands and code stay whole
# Of the labelled ones, which are alike in form, a few are enough here.
FOLDERS = {"own/traces": 1, "public/traces": 1, "labelled/traces": 4}


def recordings():
    if not CORPUS:
        return []
    files = {folder: sorted((Path(CORPUS) / folder).glob("*.json*")) for folder in FOLDERS}
    return [path for folder, every in FOLDERS.items() for path in files[folder][::every]]


@pytest.mark.skipif(not CORPUS, reason="PINCHPOINT_CORPUS is not set")
@pytest.mark.parametrize("path", recordings(), ids=lambda path: path.name)
def test_diagnosed_and_drawn(path):
    report = pp.diagnose(pp.load(path))
    assert report.crashed == ()
    assert decode(encode(report)) == report
    concludes = report.health.verdict != "cannot conclude"
    assert (report.health.record is None) == concludes
    whole = (report.steps.typical_ns or 0) if concludes else 0
    assert sum(part.ns_per_step for part in report.breakdown) == whole
    assert all(part.ns_per_step >= 0 for part in report.breakdown)
    assert sum(ns for _, ns in top_parts(report)) in (whole, report.steps.unprofiled_ns_predicted)
    assert report.verdict
    page = report_page(report, verbose=True)
    text = terminal.render(page)
    assert all(len(line) <= 80 or line.startswith(TO_COPY) for line in text.splitlines())
    assert markdown.render(page)
    assert static.render(report)
    assert ci.log(report, token="x")
