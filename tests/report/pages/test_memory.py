"""The memory report in each form, on real recordings and on hostile names."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from analysis.memory import recordings
from analysis.memory.programs import MIB, Program
from builders import TraceBuilder
from pinchpoint.errors import UsageError
from pinchpoint.report import diagnose
from pinchpoint.report.assemble.memory import memory_report
from pinchpoint.report.documents.memory import decode_memory, encode_memory
from pinchpoint.report.html_page import interactive
from pinchpoint.report.pages.memory import memory_page
from pinchpoint.report.terminal import Look, render
from pinchpoint.trace import RunFacts


def drawings(page):
    """The outermost SVG elements; those of flame graphs hold others."""
    inside = 0
    for tag in re.finditer(r"<svg\b|</svg>", page):
        inside += 1 if tag[0] == "<svg" else -1
        if tag[0] == "<svg" and inside == 1:
            begin = tag.start()
        elif inside == 0:
            yield page[begin : tag.end()]


@pytest.mark.parametrize("name", ["healthy_train", "oom", "leak_graph", "cudagraph_pool"])
def test_the_page_needs_no_network(name):
    trace = recordings.recording(name)
    page = interactive.render(trace, diagnose(trace))
    assert "http" not in page.replace("http-equiv", "")
    assert len(page) < 1_000_000
    for drawing in drawings(page):
        ElementTree.fromstring(drawing)  # well-formed
    HTMLParser().feed(page)


def test_json_comes_back_as_it_was():
    report = memory_report(recordings.recording("oom"))
    assert decode_memory(encode_memory(report)) == report


def test_a_run_on_the_cpu_is_told_how_to_record_its_memory():
    builder = TraceBuilder()
    builder.devices = []
    builder.op("aten::mm", 0, 9)
    trace = replace(builder.trace(), run=RunFacts(command=("python", "fit.py")))
    with pytest.raises(UsageError) as said:
        memory_report(trace)
    assert said.value.hint == "pinchpoint run --memory python fit.py"


def test_names_of_a_hostile_program_are_shown_as_text():
    p = Program()
    nasty = "</title><script>alert(1)</script>\x1b[31m\n<b>"
    p.alloc(3 * MIB, [(f"/tmp/{nasty}.py", 7, nasty), ("/tmp/a.py", 1, "<module>")])
    trace = p.trace()
    report = memory_report(trace)
    page = interactive.render(trace, diagnose(trace), found=report)
    assert nasty not in page
    assert "\x1b" not in page
    text = render(memory_page(report, verbose=True))
    assert "\x1b" not in text


def test_a_terminal_without_unicode_gets_ascii():
    text = render(memory_page(memory_report(recordings.recording("oom"))), Look(unicode=False))
    assert text.isascii()


def test_the_curves_keep_the_peak():
    trace = recordings.recording("healthy_train")
    page = interactive.render(trace, diagnose(trace))
    assert "peak 964 MiB" in page
    assert 'class="m-activation"' in page
