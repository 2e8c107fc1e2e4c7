"""Reports and traces in a notebook: small, and safe whatever the names are."""

from html.parser import HTMLParser

import pytest

from builders import TraceBuilder
from pinchpoint import Report
from pinchpoint.trace import Source
from report_sample import full_report, hostile_report

EVIL = "<script>alert(1)</script>\x00\u202e\"'&" + "n" * 100_000


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def trace(name="mm", **facts):
    builder = TraceBuilder()
    builder.op(name, 0, 10)
    return builder.trace(**facts)


def test_a_report_says_what_bounds_the_step_and_what_to_change():
    text = Report._repr_html_(full_report())
    assert full_report().verdict in text
    assert "Step 22.3 ms in the trace" in text
    assert "<b>sync-in-loop</b>" in text
    assert len(text) < 20_000


def test_a_trace_says_where_it_is_from_and_how_long_its_tables_are():
    text = trace()._repr_html_()
    assert "<tr><th>host_ops</th><td>1 rows</td></tr>" in text
    assert "<tr><th>devices</th><td>NVIDIA H100 80GB HBM3</td></tr>" in text


@pytest.mark.parametrize(
    "text",
    [
        Report._repr_html_(hostile_report()),
        trace(EVIL, source=Source(EVIL, EVIL, producer=EVIL))._repr_html_(),
    ],
    ids=["report", "trace"],
)
def test_names_stay_text(text):
    tags = {tag for tag, _ in Elements(text).found}
    assert not tags & {"script", "img", "a", "link", "style", "iframe"}
    assert not any(name.startswith("on") for _, attrs in Elements(text).found for name in attrs)
    assert "\x00" not in text
    assert "\u202e" not in text
    assert len(text) < 20_000
