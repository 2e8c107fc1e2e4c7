"""Files that are no recordings end in one clear line and a next step, whatever is in them."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pinchpoint.cli import main as cli
from pinchpoint.run_folder.layout import SCHEMA

DEMO = Path(__file__).parents[1] / "data/labelled/c16_sync_in_loop.slow.json.gz"

BAD = {
    "empty.json": b"",
    "text.json": b"this is not a trace\n" * 10,
    "junk.bin": bytes(range(256)) * 40,
    "page.json": b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
    "one_byte.json.gz": b"\x1f",
    "two_bytes.json.gz": b"\x1f\x8b",
    "cut.json.gz": gzip.compress(b'{"traceEvents": []}')[:12],
    "gzip_of_nothing.json.gz": gzip.compress(b""),
    "not_gzip.json.gz": b"\x1f\x8b\x08\x00" + b"garbage" * 20,
    "zeros.json.gz": gzip.compress(bytes(30_000_000)),
    "number.json": b"42",
    "other.json": b'{"name": "package", "version": "1.0.0", "dependencies": {}}',
    "other_list.json": b'[1, 2, 3, "four"]',
    "nested.json": b'{"traceEvents": ' + b"[" * 200_000,
    "nested_args.json": b'{"traceEvents": [{"ph": "X", "args": ' + b'{"a":' * 200_000,
    "nul.json": b'{"traceEvents": [\x00\x00\x00',
    "surrogate.json": b'{"traceEvents": [{"name": "\\ud800", "ph": "X", "ts": "x"}]}',
}


def assert_refused(words, capsys):
    assert cli(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    error, hint = err.splitlines()
    assert error.startswith("error: ")
    assert words[-1] in error
    assert hint.startswith(" next: ")
    assert len(hint) > len(" next: ")


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_recording(name, tmp_path, capsys):
    path = tmp_path / name
    path.write_bytes(BAD[name])
    assert_refused(["diagnose", str(path)], capsys)


def test_a_folder(tmp_path, capsys):
    assert_refused(["diagnose", str(tmp_path)], capsys)


def test_a_missing_file(tmp_path, capsys):
    assert_refused(["diagnose", str(tmp_path / "none.json")], capsys)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path, capsys):
    path = tmp_path / "secret.json"
    path.write_bytes(b"{}")
    path.chmod(0)
    assert_refused(["diagnose", str(path)], capsys)


def test_a_device_that_never_ends(capsys):
    assert_refused(["diagnose", "/dev/zero"], capsys)


def test_a_name_that_is_no_text(tmp_path, capsys):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b[31m.json")
    assert cli(["diagnose", path]) == 2
    err = capsys.readouterr().err
    assert "no such file" in err
    assert "\x1b" not in err


NESTED = b'{"schema": ' + b"[" * 100_000
ASKING = {
    "a baseline": ["bench", "history"],
    "a ledger": ["try", "--show", "--ledger"],
    "a part": ["merge"],
    "a result": ["compare", str(DEMO)],
}


@pytest.mark.parametrize("asking", ASKING)
def test_json_that_is_nested_without_end(asking, tmp_path, capsys):
    path = tmp_path / "nested.json"
    path.write_bytes(NESTED + b"\n{}\n")
    assert cli([*ASKING[asking], str(path)]) == 2
    assert "internal error" not in capsys.readouterr().err


def test_a_pipe_that_nobody_writes_to(tmp_path, capsys):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    places = [*ASKING.values(), ["monitor", "--log"], ["try", "--show", "--from"]]
    places.append(["bench", "serve", "http://127.0.0.1:1", "--prompts"])
    for words in places:
        assert cli([*words, str(path)]) == 2, words
        assert "a pipe, socket or device, not a file" in capsys.readouterr().err, words


def test_a_file_that_makes_its_reader_wait(tmp_path, monkeypatch, capsys):
    path = tmp_path / "kmsg"
    path.touch()

    def wait(number, size):
        raise BlockingIOError

    monkeypatch.setattr("pinchpoint.cli.parameter.os.read", wait)
    assert cli(["try", "--show", "--ledger", str(path)]) == 2
    assert "gives nothing yet" in capsys.readouterr().err


@pytest.mark.parametrize("text", [None, b'{"gpu": 1.5}', b'{"gpu": {"devices": 7}}', NESTED])
def test_a_run_folder_with_a_strange_environment(text, tmp_path, capsys):
    run = tmp_path / "run"
    (run / "traces").mkdir(parents=True)
    (run / "processes").mkdir()
    shutil.copy(DEMO, run / "traces" / "t.json.gz")
    (run / "run.json").write_text(json.dumps({"schema": SCHEMA}))
    process = '{"rank": 0, "device": 3, "steps": 4, "recordings": [7, {"file": "t.json.gz"}]}'
    (run / "processes" / "rank0.json").write_text(process)
    if text is None:
        os.mkfifo(run / "env.json")
    else:
        (run / "env.json").write_bytes(text)
    assert cli(["diagnose", str(run)]) in (0, 2)
    assert "internal error" not in capsys.readouterr().err


def test_streams_that_were_closed_before_the_start():
    closed = 'exec "$0" -m pinchpoint explain sync-in-loop <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", closed, sys.executable], check=False).returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        ["diagnose", ""],
        ["report", "x", "-o", ""],
        ["run", "", "x"],
        ["run", "-o", "", "--", "true"],
        ["serve", ""],
    ],
)
def test_an_empty_argument_is_no_folder(words, capsys):
    assert cli(words) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error == "error: an empty argument"
    assert hint


def test_a_name_with_a_line_break_is_one_line(tmp_path, capsys):
    assert cli(["diagnose", str(tmp_path / "no\nsuch.json")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
    path = tmp_path / "a\nb.json.gz"
    shutil.copy(DEMO, path)
    assert cli(["diagnose", str(path)]) == 0
    assert "a b.json.gz" in " ".join(capsys.readouterr().out.split())  # however it is wrapped


@pytest.mark.parametrize("command", ["diagnose", "ranks"])
def test_a_link_to_the_root_is_not_searched(tmp_path, capsys, command):
    (tmp_path / "root").symlink_to("/")
    assert cli([command, str(tmp_path / "root")]) == 2
    assert "the whole disk" in capsys.readouterr().err
