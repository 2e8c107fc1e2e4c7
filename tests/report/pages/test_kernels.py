"""Profiled launches and measured ceilings as text."""

from pathlib import Path

import msgspec
import pytest

import pinchpoint as pp
from builders import TraceBuilder
from pinchpoint.hardware.ceilings import Ceilings, Measurement, Refused
from pinchpoint.report import terminal
from pinchpoint.report.assemble.kernels import KernelsDocument, encode_kernels, kernels_document
from pinchpoint.report.pages.kernels import kernels_page
from pinchpoint.report.pages.report import report_page
from pinchpoint.report.pages.roofline import ceilings_page
from pinchpoint.report.terminal import Look

DATA = Path(__file__).parents[2] / "data/ncu"


@pytest.fixture(scope="module")
def profiled():
    return kernels_document(pp.load(DATA / "kernels.raw.csv.gz"))


def test_each_launch_has_its_bound_and_its_issues(profiled):
    text = terminal.render(kernels_page(profiled))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    at = next(i for i, line in enumerate(lines) if "compute-bound" in line)
    assert "% of its compute roof" in lines[at]
    assert "kernel-uncoalesced" in text
    assert "kernel-too-small" in text
    assert "good" not in text  # marks are details


def test_details_have_marks_and_stalls():
    document = kernels_document(pp.load(DATA / "kernels.raw.base.csv.gz"))
    text = terminal.render(kernels_page(document, verbose=True), Look(unicode=False))
    assert text.isascii()
    assert "cycles between instructions:" in text
    assert "poor" in text


def test_what_nvidia_said_is_kept():
    document = kernels_document(pp.load(DATA / "kernels.details.csv.gz"))
    text = terminal.render(kernels_page(document, verbose=True))
    assert "NVIDIA " in text
    assert any(said.kind == "OPT" for x in document.launches for said in x.nvidia)


def test_the_document_comes_back_as_it_was(profiled):
    again = msgspec.json.decode(encode_kernels(profiled), type=KernelsDocument)
    assert [x.number for x in again.launches] == [x.number for x in profiled.launches]
    assert again == profiled


def test_a_timeline_has_a_table_and_says_how_to_record_counters():
    builder = TraceBuilder()
    builder.launch(0, 10, "gemm\x1b[31m", runs_at=100, for_ns=1000)
    text = terminal.render(kernels_page(kernels_document(builder.trace())))
    assert "gemm" in text
    assert "\x1b" not in text
    assert "pinchpoint ncu " in text


def test_ceilings_name_what_was_refused():
    found = Ceilings(
        device="NVIDIA H100 80GB HBM3",
        measured_at="2026-11-28T10:00:00+00:00",
        fingerprint={},
        measurements=(
            Measurement(
                what="gemm",
                dtype="bf16",
                mode="burst",
                value=750e12,
                unit="FLOP/s",
                at="8192x8192x8192",
                spread_ratio=0.004,
                data_sheet_ratio=0.758,
                sm_clock_hz=1.755e9,
                power_w=650.0,
                throttled=("power",),
            ),
            Measurement(what="launch-host", value=2400.0, unit="ns"),
        ),
        refused=(Refused(what="copy", value=9e12, unit="bytes/s", why="more than it can do"),),
    )
    text = terminal.render(ceilings_page(found))
    assert "product bf16, burst  750 TFLOP/s         75.8 %  1755 MHz  650 W" in text
    assert "launch, host             2.40 µs" in text
    assert "! copy 9.00 TB/s: more than it can do" in text
    assert "held down" not in text
    text = terminal.render(ceilings_page(found, verbose=True), Look(unicode=False))
    assert "held down by power" in text


def test_a_report_of_counters_alone_speaks_of_no_step():
    text = terminal.render(report_page(pp.diagnose(pp.load(DATA / "kernels.raw.csv.gz"))))
    assert "NVIDIA H100 80GB HBM3" in " ".join(text.split("\n")[:2])  # by the length of the path
    assert "wins up to 1,281 of 1,977 µs" in text
    assert "a step" not in text
    assert "of the step" not in text
    assert "CPU only" not in text
