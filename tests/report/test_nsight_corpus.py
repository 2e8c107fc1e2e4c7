"""Public recordings of Nsight Systems and Nsight Compute: every analysis and view takes them."""

import os
from pathlib import Path

import pytest

import pinchpoint as pp
from pinchpoint.report import decode, encode, terminal
from pinchpoint.report.assemble.kernels import kernels_document
from pinchpoint.report.documents.roofline import roofline_document
from pinchpoint.report.html_page import static
from pinchpoint.report.pages.kernels import kernels_page
from pinchpoint.report.pages.report import report_page
from pinchpoint.report.pages.roofline import roofline_page
from pinchpoint.report.svg.roofline import roofline_svg

CORPUS = os.environ.get("PINCHPOINT_CORPUS")
TO_COPY = (" " * 12, "   confirm", "     record: ", "Next: ")  # commands and code stay whole
FOLDER = Path(CORPUS or ".", "public/nsight")
FILES = [p for end in ("sqlite", "ncu-rep") for p in sorted(FOLDER.glob(f"*.{end}.gz"))]

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS or not FILES, reason="PINCHPOINT_CORPUS has no such files"),
]


@pytest.fixture(scope="module", params=FILES, ids=lambda p: p.name)
def trace(request):
    return pp.load(request.param)


def test_diagnosed_and_drawn(trace):
    report = pp.diagnose(trace)
    assert report.crashed == ()
    assert decode(encode(report)) == report
    known = report.health.verdict != "cannot conclude"
    whole_ns = (report.steps.typical_ns or 0) if known else 0
    assert sum(part.ns_per_step for part in report.breakdown) == whole_ns
    for verbose in (False, True):
        text = terminal.render(report_page(report, verbose=verbose))
        assert all(len(line) <= 80 or line.startswith(TO_COPY) for line in text.splitlines())
    assert "</html>" in static.render(report)


def test_kernels_and_roofline(trace):
    document = kernels_document(trace)
    no_kernels = trace.device_ops is None or not len(trace.device_ops)
    assert document.launches or document.record or no_kernels
    assert terminal.render(kernels_page(document, verbose=True)).endswith("\n")
    placed = roofline_document(trace)
    assert terminal.render(roofline_page(placed, verbose=True)).endswith("\n")
    assert roofline_svg(placed).endswith("</svg>")
