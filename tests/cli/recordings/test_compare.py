import json
import sys
from pathlib import Path

import pytest

from pinchpoint.cli import main as cli

RECORDING = Path(__file__).parents[3] / "src/pinchpoint/data/item_sync.json.gz"


def test_a_profile_against_itself(capsys):
    assert cli(["compare", str(RECORDING), str(RECORDING)]) == 0
    out = capsys.readouterr().out
    assert "(+0.0 %)" in out
    assert "where the step goes" in out
    assert "of both" in out


def test_profiles_as_json(capsys):
    assert cli(["compare", str(RECORDING), str(RECORDING), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "pinchpoint.compare/1"
    assert document["change_ns"] == 0
    assert sum(r["change_ns"] for r in document["rows"]) == 0
    assert {f["change"] for f in document["findings"]} == {"stayed"}


def test_two_results(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        words = ["bench", "run", "-p", "1", "--no-steps", "--name", "t", "-o", folder]
        assert cli([*words, "--", sys.executable, "-c", "pass"]) == 0
    capsys.readouterr()
    assert cli(["compare", "a", "b/result.json"]) == 0
    out = capsys.readouterr().out
    assert "wall time of the" in out
    assert "different sessions" in out


def test_two_kinds_and_bad_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["bench", "run", "-p", "1", "--no-steps", "-o", "a"]
    assert cli([*words, "--", sys.executable, "-c", "pass"]) == 0
    for pair, said in (
        (["a", str(RECORDING)], "not of one kind"),
        (["none", "none"], "none"),
        ([str(RECORDING)], "compare --help"),
    ):
        assert cli(["compare", *pair]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--markdown", "--format=github"])
def test_other_formats(option, capsys, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    assert cli(["compare", str(RECORDING), str(RECORDING), option]) == 0
    assert "where the step goes" in capsys.readouterr().out
