"""Contrast, names and landmarks of the page as text; test_page_browser has what a browser shows."""

import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from builders import TraceBuilder
from pinchpoint.report import diagnose
from pinchpoint.report.html_page import interactive

STYLE = (files("pinchpoint.report") / "templates/report.html").read_text("utf-8")
LEAST_OF_TEXT, LEAST_OF_SHAPES = 4.5, 3.0  # WCAG 2.2: 1.4.3 and 1.4.11


def schemes():
    light, dark = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)[:2]
    read = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", text)) for text in (light, dark)]
    return {"light": read[0], "dark": read[0] | read[1]}


def luminance(colour):
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("behind", ["paper", "card"])
def test_text_and_shapes_stand_out(scheme, behind):
    colours = schemes()[scheme]
    for text in ("ink", "soft", "good", "device"):
        assert contrast(colours[text], colours[behind]) >= LEAST_OF_TEXT, text
    for shape in ("device", "exposed", "idle", "host"):
        assert contrast(colours[shape], colours[behind]) >= LEAST_OF_SHAPES, shape


class Outline(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.unnamed, self.open = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        known = dict(attrs)
        self.tags.append((tag, known))
        if tag in ("button", "a"):
            self.open = [tag, "aria-label" in known]
        named = {"aria-label", "aria-labelledby", "aria-hidden"} & set(known)
        if tag in ("nav", "canvas", "input") and not named:
            self.unnamed.append((tag, known))

    def handle_data(self, data):
        if self.open:
            self.open[1] |= bool(data.strip())

    def handle_endtag(self, tag):
        if self.open and tag == self.open[0]:
            if not self.open[1]:
                self.unnamed.append(tag)
            self.open = None


def outline():
    builder = TraceBuilder()
    for i in range(4):
        builder.step(i, 1000 * i, 1000)
        builder.op("aten::mm", 1000 * i + 10, 500)
        builder.launch(1000 * i + 20, 100, "gemm", runs_at=1000 * i + 300, for_ns=400)
    trace = builder.trace()
    return Outline(interactive.render(trace, diagnose(trace)))


def test_landmarks_and_names_are_there():
    found = outline()
    names = [tag for tag, _ in found.tags]
    assert [names.count(tag) for tag in ("main", "header", "nav", "h1")] == [1, 1, 1, 1]
    assert found.unnamed == []


def test_ids_are_unique():
    ids = [known["id"] for _, known in outline().tags if "id" in known]
    assert len(ids) == len(set(ids))


def test_headers_of_tables_say_what_they_head():
    heads = [known for tag, known in outline().tags if tag == "th"]
    assert heads
    assert all("scope" in known or known.get("class") == "bar" for known in heads)
