"""The roofline in each form: terminal, SVG, HTML, JSON."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

import pinchpoint as pp
from analysis.launches import COMPUTE, launch, profiled
from builders import TraceBuilder
from pinchpoint.report.assemble.report import diagnose
from pinchpoint.report.documents.roofline import (
    RooflineDocument,
    encode_roofline,
    roofline_document,
)
from pinchpoint.report.html_page import static as html
from pinchpoint.report.pages.roofline import roofline_page
from pinchpoint.report.svg.roofline import roofline_svg
from pinchpoint.report.terminal import Look, render
from pinchpoint.trace import RunFacts
from report_sample import full_report

DATA = Path(__file__).parents[2] / "data/ncu"
EVIL = '</svg><script>alert("1")</script>\x1b[31m\n&'
MS = 1_000_000


def training(names=("aten::mm",), steps=2, shapes="[[4096,4096],[4096,4096]]"):
    """Steps of products of two bf16 matrices of 4096."""
    builder = TraceBuilder()
    for step in range(steps):
        builder.step(step, step * 10 * MS, 10 * MS)
        for i, name in enumerate(names):
            at = step * 10 * MS + 1000 * i
            builder.op(name, at + 10, 500, shapes=shapes,
                       dtypes='["c10::BFloat16","c10::BFloat16"]')  # fmt: skip
            builder.launch(at + 20, 10, "gemm", runs_at=at + MS * (1 + i), for_ns=200_000)
    return builder.trace()


@pytest.fixture
def document():
    return roofline_document(training())


def test_a_typical_step_beside_another_mean_is_called_so(document):
    assert "Step 9.99 ms (" in render(roofline_page(document))
    used = msgspec.structs.replace(document.utilisation, mean_step_ns=15 * MS)
    text = render(roofline_page(msgspec.structs.replace(document, utilisation=used)))
    assert "Typical step 9.99 ms (" in text
    assert "the mean step takes 15.0 ms" in " ".join(text.split())


def test_what_points_are_sorted_by_has_a_column(document):
    heads = next(x for x in render(roofline_page(document)).splitlines() if "won" in x)
    assert "FLOP/B" in heads
    text = render(roofline_page(document, sort="flops"))
    heads = next(x for x in text.splitlines() if "won" in x)
    assert "flops" in heads
    assert "FLOP/B" not in heads
    assert max(map(len, text.splitlines())) <= 80


def test_the_terminal_says_mfu_and_how_far_the_roof_is(document):
    text = render(roofline_page(document))
    assert "MFU 1.4 %" in text  # 2·4096³ FLOP in 10 ms against 989 TFLOP/s
    assert "137 GFLOP a step in matrix work, mostly bf16; peak 989 TFLOP/s" in text
    row = next(line for line in text.splitlines() if line.startswith("mm "))
    assert row.split()[3:] == ["400", "µs", "bf16", "1365", "687T", "503G", "compute", "69.5", "%",
                               "122", "µs"]  # fmt: skip
    assert max(map(len, text.splitlines())) <= 80
    assert "roof memory" in text


def test_a_recording_of_counters_shows_launches():
    document = roofline_document(pp.load(DATA / "kernels.raw.base.csv.gz"))
    text = render(roofline_page(document), Look(unicode=False))
    assert text.isascii()
    assert document.what == "launches"
    assert any("90.3 %" in line and "compute" in line for line in text.splitlines())
    assert "MFU" not in text
    svg = roofline_svg(document)
    ElementTree.fromstring(svg)
    assert "float32" not in svg


def test_the_document_comes_back_as_it_was(document):
    assert msgspec.json.decode(encode_roofline(document), type=RooflineDocument) == document


def test_points_beyond_the_limit_are_counted():
    found = roofline_document(training(("aten::mm", "aten::add")), most=1)
    assert len(found.points) == 1
    assert found.points_left_out == 1
    assert "and 1 more" in render(roofline_page(found))


def test_the_plot_is_a_picture_without_script(document):
    svg = roofline_svg(document)
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg")
    assert not re.search("<script|href|onload", svg)
    discs = [e for e in root.iter() if e.tag.endswith("circle")]
    assert len(discs) == 1
    assert "aten::mm" in discs[0][0].text


def test_nothing_to_draw():
    document = roofline_document(profiled(launch(metrics={COMPUTE: 50.0})))
    svg = roofline_svg(document)
    ElementTree.fromstring(svg)
    assert "nothing that can be placed" in svg
    assert "100 % of the time has no place here" in render(roofline_page(document))


def test_names_stay_text(document):
    (point,) = document.points
    evil = msgspec.structs.replace(
        document,
        device=EVIL,
        points=(msgspec.structs.replace(point, name=EVIL, shapes=EVIL),),
        notes=(EVIL,),
    )
    svg = roofline_svg(evil)
    ElementTree.fromstring(svg)
    assert "<script" not in svg
    page = html.render(full_report(roofline=evil))
    assert "<script" not in page
    assert "\x1b" not in page
    assert "\x1b" not in render(roofline_page(evil))


def test_the_report_carries_it():
    found = diagnose(training())
    assert found.roofline.utilisation.mfu == pytest.approx(0.0139, abs=1e-4)
    page = html.render(found)
    assert "Arithmetic and roofline" in page
    assert "MFU 1.4 %" in page
    (drawing,) = re.findall(r"<svg xmlns.*?</svg>", page, re.DOTALL)
    ElementTree.fromstring(drawing)


def test_a_report_without_it_has_no_such_section():
    assert "Arithmetic" not in html.render(full_report())
    builder = TraceBuilder()
    builder.op("aten::mm", 0, 100)
    assert diagnose(builder.trace()).roofline is None


def test_signs_and_columns_are_explained(document):
    text = render(roofline_page(document))
    assert "Whole recording: " in text
    assert "won: what of it would go" in text


def test_what_passes_its_roof_is_called_so_with_the_reason(document):
    fast = msgspec.structs.replace(document.points[0], bound="memory", roof_ratio=1.1)
    part = msgspec.structs.replace(fast, name="aten::gather", roof_ratio=4.0)
    above = msgspec.structs.replace(document, points=(fast, part))
    text = " ".join(render(roofline_page(above)).split())
    assert "above the ceiling: mm (110.0 %): the L2 cache served a part" in text
    assert "above the ceiling: gather (400.0 %): bytes are counted from whole shapes" in text


def test_a_run_whose_other_window_has_no_sizes_shows_the_one_with_names():
    alone = training(shapes=None)
    assert not any(point.bound for point in roofline_document(alone).points)
    run = roofline_document(replace(alone, run=RunFacts(named=training())))
    assert run.points == roofline_document(training()).points
    assert run.utilisation.mfu > 0
    assert run.notes[0].startswith("of the steps recorded with names")


def test_tables_of_the_window_with_names_say_so():
    said = diagnose(replace(training(shapes=None), run=RunFacts(named=training()))).tables
    assert said["operators"].clock == "as recorded"
    assert said["operators_by_shape"].clock == "as recorded with names"
