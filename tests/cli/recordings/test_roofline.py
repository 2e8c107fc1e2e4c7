import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pinchpoint.cli import main
from pinchpoint.hardware import ceilings as store

NCU = Path(__file__).parents[2] / "data" / "ncu"


@pytest.fixture(autouse=True)
def no_ceilings_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("PINCHPOINT_CEILINGS", str(tmp_path / "ceilings"))


def measured(device="NVIDIA H100 80GB HBM3"):
    return store.Ceilings(
        device=device,
        measured_at="2026-11-28T10:00:00+00:00",
        fingerprint={"device": device},
        measurements=(
            store.Measurement(what="copy", value=2.5e12, unit="bytes/s"),
            store.Measurement(what="gemm", dtype="bf16", mode="burst", value=7e14, unit="FLOP/s"),
        ),
    )


def run(capsys, *words) -> tuple[int, str, str]:
    code = main(list(map(str, words)))
    out, err = capsys.readouterr()
    return code, out, err


def roofs(out):
    return {r["dtype"]: (r["per_s"], r["measured"]) for r in json.loads(out)["roofs"]}


def test_launches_and_their_roofs(capsys):
    code, out, err = run(capsys, "roofline", NCU / "kernels.raw.base.csv.gz")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "NVIDIA H100" in lines[0]
    assert any("compute" in line and "90.3 %" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_json_is_one_document(capsys):
    code, out, _ = run(capsys, "roofline", NCU / "kernels.raw.base.csv.gz", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["schema"] == "pinchpoint.roofline/1"
    product = next(p for p in document["points"] if p["launch"] == 0)
    assert (product["flops"], product["bound"]) == (2 * 4096**3, "compute")


def test_measured_ceilings_are_preferred_wherever_they_come_from(capsys, tmp_path):
    file = NCU / "kernels.raw.base.csv.gz"
    sheet = roofs(run(capsys, "roofline", file, "--json")[1])
    assert not any(was for _, was in sheet.values())
    written = store.save(measured(), tmp_path / "mine.json")
    named = roofs(run(capsys, "roofline", file, "--ceilings", written, "--json")[1])
    assert named[None] == (2.5e12, True)
    store.save(measured("NVIDIA A10"))
    assert roofs(run(capsys, "roofline", file, "--json")[1]) == sheet
    store.save(measured())
    assert roofs(run(capsys, "roofline", file, "--json")[1]) == named
    assert roofs(run(capsys, "roofline", file, "--json", "--data-sheet")[1]) == sheet


def test_the_plot_is_written_beside_the_answer(capsys, tmp_path):
    svg = tmp_path / "roofline.svg"
    code, out, err = run(capsys, "roofline", NCU / "kernels.raw.base.csv.gz", "--svg", svg)
    assert code == 0
    assert "roofline.svg" in err
    assert "roofline.svg" not in out
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")


def test_kernels_of_a_report_of_counters(capsys):
    code, out, err = run(capsys, "kernels", NCU / "kernels.raw.csv.gz")
    assert (code, err) == (0, "")
    assert "kernel-uncoalesced" in out
    assert "kernel-too-small" in out
    code, out, _ = run(capsys, "kernels", NCU / "kernels.raw.csv.gz", "--json")
    assert json.loads(out)["schema"] == "pinchpoint.kernels/1"
    code, out, _ = run(capsys, "kernels", NCU / "kernels.details.csv.gz", "--verbose")
    assert "NVIDIA " in out


@pytest.mark.parametrize("command", ["roofline", "kernels"])
def test_what_cannot_be_read_is_one_line(capsys, command, tmp_path):
    bad = tmp_path / "report.ncu-rep"
    bad.write_bytes(b"NVR\x00" + b"\xff" * 60)
    code, out, err = run(capsys, command, bad)
    assert (code, out) == (2, "")
    assert "report.ncu-rep" in err
    assert "Traceback" not in err
    code, _, err = run(capsys, command, tmp_path / "none.ncu-rep")
    assert code == 2


def test_ceilings_that_are_no_ceilings(capsys, tmp_path):
    bad = tmp_path / "c.json"
    bad.write_text("{")
    code, out, err = run(capsys, "roofline", NCU / "kernels.raw.csv.gz", "--ceilings", bad)
    assert (code, out) == (2, "")
    assert "c.json" in err
