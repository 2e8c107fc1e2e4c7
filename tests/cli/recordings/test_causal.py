import json
from dataclasses import replace
from pathlib import Path
from shutil import copy

import pytest

import pinchpoint as pp
from pinchpoint.cli import main
from pinchpoint.importers.open import load
from pinchpoint.report.assemble.report import diagnose
from pinchpoint.report.documents.causal import CausalDocument, causal_document
from pinchpoint.report.pages.causal import causal_page
from pinchpoint.report.terminal import render
from pinchpoint.trace import HostKind, RunFacts
from program import Program

DATA = Path(__file__).parents[2] / "data"
RECORDING = DATA / "labelled" / "c38_non_contiguous.slow.json.gz"


@pytest.fixture(autouse=True)
def no_ceilings_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("PINCHPOINT_CEILINGS", str(tmp_path / "ceilings"))


def run(capsys, *words):
    code = main(list(map(str, words)))
    return code, *capsys.readouterr()


def test_all_cuts_of_a_recording(capsys):
    code, out, err = run(capsys, "causal", RECORDING)
    assert (code, err) == (0, "")
    assert "What it would be" in " ".join(out.split())
    for title in ("operators", "kernels"):
        assert title in out
    assert max(map(len, out.splitlines())) <= 80


def test_one_cut_as_json(capsys):
    code, out, _ = run(capsys, "causal", RECORDING, "--by", "operator", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["schema"] == "pinchpoint.causal/1"
    assert {piece["by"] for piece in document["pieces"]} == {"operator"}
    for piece in document["pieces"]:
        assert piece["occupied_ns"] == piece["host_ns"] + piece["device_ns"]
        assert piece["step_if_free_ns"] <= piece["step_at_limit_ns"] <= document["base_ns"]


def test_pieces_of_a_run_are_those_of_its_window_with_names():
    """The window without stacks knows no lines and no limits."""
    p = Program()
    for _ in p.steps(4):
        with p.row("aten::mm"):
            p.kernel("gemm", 900)
    named = load(RECORDING)
    run_of_both = replace(p.trace(), run=RunFacts(named=named))
    said, alone = causal_document(run_of_both, "line"), causal_document(named, "line")
    assert [one.name for one in said.pieces] == [one.name for one in alone.pieces] != []
    assert [one.name for one in pp.causal(run_of_both, "line").pieces] == [
        one.name for one in pp.causal(named, "line").pieces
    ]
    # One path for one run: that of its report, which is of the window without stacks.
    assert said.critical_path == diagnose(run_of_both).critical_path != alone.critical_path
    assert (said.names_apart, alone.names_apart) == (True, False)


def test_a_cut_that_there_is_not(capsys):
    code, out, err = run(capsys, "causal", RECORDING, "--by", "weekday")
    assert (code, out) == (2, "")
    assert "weekday" in err


def test_a_recording_that_cannot_be_replayed_says_why():
    p = Program()
    for _ in p.steps(4):
        p.host("train.py(1): work", 1_000, kind=HostKind.PYTHON)
    document = causal_document(p.trace())
    assert isinstance(document, CausalDocument)
    assert document.pieces == ()
    text = render(causal_page(document))
    assert "No causal profile: host and device together were not recorded" in text


def test_the_path_of_a_step_and_its_ladder(capsys, tmp_path):
    page = tmp_path / "causal.html"
    code, out, _ = run(capsys, "causal", RECORDING, "--json", "--html", page)
    path = json.loads(out)["critical_path"]
    assert code == 0
    assert sum(path["ns_per_step"].values()) == pytest.approx(json.loads(out)["base_ns"], rel=0.02)
    starts = [stretch["start_ns"] for stretch in path["stretches"]]
    assert starts == sorted(starts)
    text = page.read_text("utf-8")
    assert "The critical path of a step" in text
    assert "aten::add" in text


def test_pieces_in_another_order(capsys):
    by = ("--by", "kernel", "--json")
    _, out, _ = run(capsys, "causal", RECORDING, *by, "--sort", "calls")
    calls = [piece["calls"] for piece in json.loads(out)["pieces"]]
    assert calls == sorted(calls, reverse=True)
    code, _, err = run(capsys, "causal", RECORDING, *by, "--sort", "weekday")
    assert code == 2
    assert "step_if_free_ns" in err


def test_the_field_that_pieces_are_in_the_order_of_is_shown(capsys):
    _, out, _ = run(capsys, "causal", RECORDING, "--by", "operator", "--sort", "needed")
    (heads,) = (line for line in out.splitlines() if line.startswith("operators"))
    assert "needed bytes" in heads
    assert max(map(len, out.splitlines())) <= 80
    _, plain, _ = run(capsys, "causal", RECORDING, "--by", "operator", "--sort", "critical")
    (heads,) = (line for line in plain.splitlines() if line.startswith("operators"))
    assert heads.split()[-2:] == ["host", "critical"]


def test_a_cut_without_pieces_says_so(capsys):
    code, out, _ = run(capsys, "causal", RECORDING, "--by", "collective")
    assert code == 0
    assert "No collective takes 1 % of the step or more." in out


def test_a_folder_of_ranks_is_one_job(capsys, tmp_path):
    for path in (DATA / "ranks").glob("even.rank*.json.gz"):
        copy(path, tmp_path)
    code, out, _ = run(capsys, "causal", tmp_path, "--json")
    document = json.loads(out)
    assert (code, document["schema"], document["ranks"]) == (0, "pinchpoint.causal_job/1", [0, 1])
    for piece in document["pieces"]:
        assert piece["step_if_free_ns"] <= piece["step_if_free_there_ns"] <= document["base_ns"]
        assert piece["least_own_ns"] <= piece["own_ns"]
    code, out, _ = run(capsys, "causal", tmp_path)
    assert code == 0
    assert "on 2 ranks" in out
