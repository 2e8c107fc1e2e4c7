"""Every format for people, on reports written by hand; expected outputs lie in golden/."""

import re
import xml.etree.ElementTree as ET

import pytest
from msgspec.structs import replace

from pinchpoint.report import ci, decode, encode, markdown, terminal
from pinchpoint.report.blocks import Page, Table
from pinchpoint.report.documents.clock import as_recorded
from pinchpoint.report.html_page import static
from pinchpoint.report.pages.report import report_page
from pinchpoint.report.terminal import Look
from pinchpoint.report.words.breakdown import WITHIN_RANGES, breakdown_title, top_parts
from pinchpoint.report.words.report import source_line
from report_sample import full_report, healthy_report, hostile_report, inconclusive_report, part

REPORTS = {
    "full": full_report,
    "healthy": healthy_report,
    "inconclusive": inconclusive_report,
    "hostile": hostile_report,
}
RENDERERS = {
    "terminal.txt": lambda r: terminal.render(report_page(r)),
    "terminal_verbose_ascii.txt": lambda r: terminal.render(
        report_page(r, verbose=True), Look(unicode=False)
    ),
    "markdown.md": lambda r: markdown.render(report_page(r, verbose=True)),
    "html.html": static.render,
    "github.txt": lambda r: ci.log(r, token="unguessable"),
}


@pytest.mark.parametrize("format_", RENDERERS)
@pytest.mark.parametrize("report", ["full", "healthy", "inconclusive"])
def test_expected_output(report, format_, golden):
    golden(f"{report}.{format_}", RENDERERS[format_](REPORTS[report]()))


@pytest.mark.parametrize("report", REPORTS)
def test_json_round_trips(report):
    original = REPORTS[report]()
    if report == "hostile":
        assert decode(encode(original)).verdict == original.verdict
    else:
        assert decode(encode(original)) == original


@pytest.mark.parametrize("format_", RENDERERS)
def test_hostile_names_stay_inert_text(format_):
    text = RENDERERS[format_](hostile_report())
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert len(text) < 50_000


def test_markup_in_names_is_not_taken_for_ours():
    text = terminal.render(report_page(hostile_report()), Look(colour=True))
    assert "_[red]@team" in text
    assert set(re.findall(r"\x1b\[([0-9;]*)m", text)) <= {
        "0",
        "1",
        "1;31",
        "2",
        "31",
        "32",
        "33",
        "36",
    }


def test_hostile_names_cannot_open_an_html_element():
    page = static.render(hostile_report())
    assert "<script" not in page
    assert page.count("<h1") == page.count("</h1") == 1


def test_hostile_names_cannot_leave_a_markdown_cell():
    text = RENDERERS["markdown.md"](hostile_report())
    assert "<script" not in re.sub(r"(`+).*?\1", "", text)
    assert "@team" not in re.sub(r"(`+).*?\1", "", text)
    row = next(line for line in text.splitlines() if line.startswith("| &lt;script"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 5


def test_workflow_commands_in_names_are_stopped():
    log = ci.log(hostile_report(), token="unguessable")
    quoted, _, commands = log.removeprefix("::stop-commands::unguessable\n").partition(
        "\n::unguessable::\n"
    )
    assert "##[error]" in quoted
    assert [line[:10] for line in commands.splitlines()] == ["::warning "]


def test_every_line_fits_the_terminal():
    for report in REPORTS.values():
        for width in (60, 80, 120):
            text = terminal.render(report_page(report()), Look(width=width))
            assert max(map(len, text.splitlines())) <= max(width, 80)


def test_columns_without_room_are_named():
    heads = ("model", *(f"figure {n}" for n in range(12)))
    table = Table(heads=heads, rows=(("a", *["1.25"] * 12),), says_cut=True)
    text = " ".join(terminal.render(Page((table,))).split())
    shown = [head for head in heads if head in text.partition("no room for")[0]]
    assert text.endswith(f"no room for: {', '.join(heads[len(shown) :])} (--json)")
    assert 1 < len(shown) < len(heads)


def test_names_keep_what_is_said_of_them():
    """The longest text of two columns is cut; names alone would tell nothing."""
    rows = (("step", "1.5 s"), ("the step, added up", "dataload, " * 20))
    table = Table(("what lines say of steps", "value"), rows, says_cut=True)
    text = terminal.render(Page((table,)))
    assert "1.5 s" in text
    assert "dataload, dataload" in text
    assert "no room" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_ascii_terminals_get_ascii():
    page = report_page(full_report(), verbose=True)
    assert terminal.render(page, Look(unicode=False)).isascii()


@pytest.mark.parametrize("report", REPORTS)
def test_the_page_is_well_formed_and_needs_no_network(report):
    page = static.render(REPORTS[report]())
    assert not re.search(r"""(?:src|href)=(?!"#)|url\(|@import|<script|<link""", page)
    body = page[page.index("<body") : page.index("</html>")]
    ET.fromstring(body)  # raises if an element is not closed


def test_parts_that_are_summed_up_still_add_up_to_the_step():
    report = full_report()
    assert sum(ns for _, ns in top_parts(report)) == report.steps.unprofiled_ns_predicted
    assert top_parts(report)[-1] == ("the other 2 parts", 200_000)


def test_without_a_correction_the_recorded_step_is_shown():
    full = full_report()
    report = as_recorded(replace(full, breakdown=(part("gemm", "products", "device", 22.3),)))
    assert top_parts(report) == (("products", 22_300_000),)
    assert breakdown_title(report) == "Where a step goes, as recorded"
    assert breakdown_title(full_report()) == "Where a step goes, without the profiler"


def test_devices_of_one_kind_are_counted():
    from pinchpoint.report.documents.report import SourceInfo

    report = full_report(source=SourceInfo(path="a", format="x", devices=("H100",) * 8))
    assert source_line(report)[1] == "8 × H100"


def test_of_ranges_alone_no_processor_is_named():
    from pinchpoint.report.documents.report import SourceInfo

    of_nothing = full_report(source=SourceInfo(path="a", format="x", events=9))
    assert source_line(of_nothing)[1] == "CPU only: no device activity"
    within = (part("host-unrecorded", WITHIN_RANGES, "host", 22.3),)
    assert source_line(replace(of_nothing, breakdown=within))[1] == "annotated ranges alone"
