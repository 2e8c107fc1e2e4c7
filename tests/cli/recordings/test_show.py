"""``pinchpoint show`` and the JSON of a size."""

import json
from pathlib import Path

import pytest

from pinchpoint.cli import main

DEMO = str(Path(__file__).parents[3] / "src/pinchpoint/data/item_sync.json.gz")


def test_a_finding_by_id_and_by_number(capsys):
    assert main(["show", DEMO, "sync-in-loop"]) == 0
    by_id = capsys.readouterr().out
    assert by_id.startswith("sync-in-loop: ")
    assert "fix: " in by_id
    found = [i for i in ("1", "2") if main(["show", DEMO, i]) == 0]
    assert found
    assert by_id in capsys.readouterr().out


def test_json(capsys):
    assert main(["show", DEMO, "sync-in-loop", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "sync-in-loop"


def test_without_a_finding_all_are_listed(capsys):
    assert main(["show", DEMO]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[0].startswith("1  launch-bound: ")
    assert listed[-1] == f"pinchpoint show {DEMO} 1 shows the first whole"
    assert main(["show", DEMO, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["id"] == "launch-bound"


@pytest.mark.parametrize(
    ("asked", "said"),
    [("activation-memory", "was not checked"), ("nonsense", "no finding 'nonsense'")],
)
def test_what_was_not_found_says_why(asked, said, capsys):
    assert main(["show", DEMO, asked]) == 2
    assert said in capsys.readouterr().err


def test_json_of_a_size(capsys):
    assert main(["diagnose", DEMO, "--json", "--max-chars", "7000"]) == 0
    text = capsys.readouterr().out
    assert len(text) <= 7001
    assert json.loads(text)["findings"]


def test_a_size_is_for_json_only(capsys):
    assert main(["diagnose", DEMO, "--max-chars", "6000"]) == 2
    assert "--max-chars" in capsys.readouterr().err
