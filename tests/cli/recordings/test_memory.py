import json
from pathlib import Path

import pytest

from pinchpoint.cli import main

FOLDER = Path(__file__).parents[2] / "data" / "memory"


def run(capsys, *words) -> tuple[int, str, str]:
    code = main(["memory", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_answer_comes_first(capsys):
    code, out, err = run(capsys, FOLDER / "leak_graph.pickle.gz")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("leak_graph.pickle.gz · device 0 · 6,328 events")
    assert any(line.startswith("1  graph-retained") for line in lines[:25])
    assert max(len(line) for line in lines if "  confirm  " not in line) <= 90


def test_diagnose_says_what_was_held_and_leads_here(capsys):
    path = FOLDER / "healthy_train.pickle.gz"
    assert main(["diagnose", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("Device 0 held ") for line in lines)
    assert lines[-1].startswith("Next: pinchpoint")


def test_json_is_one_document(capsys):
    code, out, _ = run(capsys, FOLDER / "oom.pickle.gz", "--at", "oom", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["schema"] == "pinchpoint.memory/1"
    device = document["devices"][0]
    assert device["moments"][0]["what"] == "oom"
    assert device["peaks"]["requested"]["bytes"] == 2011004928
    assert document["findings"][0]["id"] == "activation-memory"
    held = {c["category"]: c["bytes"] for c in device["moments"][0]["categories"]}
    assert (held["parameters"], held["optimizer state"]) == (109215744, 218431488)


def test_two_recordings_confirm_what_was_predicted(capsys):
    first, second = FOLDER / "healthy_train.pickle.gz", FOLDER / "ckpt_train.pickle.gz"
    code, out, _ = run(capsys, first, "--compare", second)
    assert code == 0
    text = " ".join(out.split())
    assert "Checkpointing was predicted to save 361 MiB" in text
    assert "it saved 360 MiB (-0.3%)" in text


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--at", "oom"), "no request failed"),
        (("--at", "noon"), "not a moment"),
        (("--capacity", "much"), "not a size"),
        (("--ranks", "0"), "at least 1"),
    ],
)
def test_what_makes_no_sense_is_one_line(capsys, words, problem):
    code, out, err = run(capsys, FOLDER / "eval_nograd.pickle.gz", *words)
    assert (code, out) == (2, "")
    assert problem in err
    assert "Traceback" not in err


def test_a_time_after_the_first_event(capsys):
    code, out, _ = run(capsys, FOLDER / "healthy_train.pickle.gz", "--at", "0s", "--json")
    assert code == 0
    assert json.loads(out)["devices"][0]["moments"][0]["event"] == 0


def test_a_file_without_memory(capsys, tmp_path):
    path = tmp_path / "x.pickle"
    path.write_bytes(b"\x80\x04}\x94.")
    code, _, err = run(capsys, path)
    assert code == 2
    assert "not of a memory snapshot" in err
