"""Places and archives that once ended in an internal error."""

import gzip
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pinchpoint.cli import dispatch
from pinchpoint.cli import main as cli


@pytest.mark.parametrize("damage", ["lzma", "empty name"])
def test_a_damaged_member_is_a_damaged_zip(tmp_path, capsys, damage):
    path = tmp_path / "x.zip"
    method = zipfile.ZIP_LZMA if damage == "lzma" else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.json", "{}" * 100)
    raw = bytearray(path.read_bytes())
    if damage == "lzma":
        raw[45:60] = b"\xff" * 15
    else:
        raw = bytearray(bytes(raw).replace(b"a.json", b"\0.json"))
    path.write_bytes(raw)
    assert cli(["diagnose", str(path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_list_that_names_itself(tmp_path, capsys):
    path = tmp_path / "list.txt"
    path.write_text(f"{path}\n")
    assert cli(["ranks", str(path)]) == 2
    assert "names itself" in capsys.readouterr().err


def test_a_link_to_itself_cannot_be_written(tmp_path, capsys):
    loop, trace = tmp_path / "loop", tmp_path / "t.json"
    loop.symlink_to(loop)
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    trace.write_text(json.dumps({"traceEvents": [event]}))
    assert cli(["report", str(trace), "-o", str(loop)]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_ceilings_in_a_device_are_not_read(tmp_path, capsys):
    trace = tmp_path / "t.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    trace.write_text(json.dumps({"traceEvents": [event]}))
    assert cli(["causal", str(trace), "--ceilings", "/dev/null"]) == 2
    assert "/dev/null: a folder, pipe or device" in capsys.readouterr().err


def test_a_note_in_another_encoding(tmp_path):
    trace = tmp_path / "t.json"
    trace.touch()
    assert cli(["note", str(trace), "caf\udce9"]) == 0
    assert "caf\\udce9" in (tmp_path / "t.json.note.md").read_text("utf-8")


def test_steps_in_which_nothing_passes(tmp_path, capsys):
    mark = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "dur": 900}
    events = [
        mark | {"name": "ProfilerStep#1", "ts": 1000},
        mark | {"name": "ProfilerStep#3", "ts": 3000},
        {"ph": "B", "name": "k", "ts": 1000, "tid": 2, "pid": "p", "cat": "gpu_memcpy"}
        | {"args": {"stream": 7, "device": 0}},
        {"ph": "E", "ts": 5424, "tid": 2, "pid": "p"},
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events}))
    assert cli(["diagnose", str(path)]) == 0
    assert capsys.readouterr().err == ""


def test_an_interruption_within_an_import_is_no_regression(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pinchpoint.cli.output", None)  # importing it fails
    assert dispatch._interrupted(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "interrupted; nothing was written\n"


@pytest.mark.parametrize("words", [["diagnose"], ["report", "-o", "out.html"]])
def test_a_link_to_itself_is_a_refusal(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").symlink_to("t.json")
    assert cli([words[0], "t.json", *words[1:]]) == 2
    assert "t.json" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_name_that_is_not_utf_8_is_told_with_its_bytes_escaped(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = Path(__file__).parents[1] / "data"
    name, database = os.fsdecode(b"n\xff.json.gz"), os.fsdecode(b"n\xff.sqlite")
    shutil.copy(data / "labelled" / "c16_sync_in_loop.slow.json.gz", name)
    for words in (["diagnose", name], ["kernels", name], ["compare", name, name], ["ranks", name]):
        assert cli([*words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)
    assert cli(["diagnose", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"]["path"] == "n\\xff.json.gz"
    Path(database).write_bytes(b"SQLite format 3\0")
    assert cli(["diagnose", database]) == 2
    assert cli(["export", name, "--to", "parquet", "-o", os.fsdecode(b"p\xff")]) == 2
    assert "UTF-8" in capsys.readouterr().err


def test_a_gzip_header_without_an_end_is_a_damaged_gzip(tmp_path, capsys):
    path = tmp_path / "t.json.gz"
    named = gzip.compress(b"{}")
    path.write_bytes(named[:3] + b"\x08" + named[4:10] + b"n" * (1 << 20) + b"\0" + named[10:])
    assert cli(["diagnose", str(path)]) == 2
    assert "damaged" in capsys.readouterr().err


def test_an_interruption_while_the_commands_are_imported_is_quiet():
    program = """if True:
    import sys
    class Interrupted:
        def find_spec(self, name, *rest):
            if name == "pinchpoint.cli.dispatch":
                raise KeyboardInterrupt
    sys.meta_path.insert(0, Interrupted())
    import pinchpoint.cli"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_takes_a_page_if_somebody_reads_it(tmp_path, capsys):
    pipe, trace = tmp_path / "pipe", tmp_path / "t.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    trace.write_text(json.dumps({"traceEvents": [event]}))
    os.mkfifo(pipe)
    words = ["export", str(trace), "--to", "otlp", "-o", str(pipe)]
    assert cli(words) == 2
    assert "nobody reads this pipe" in capsys.readouterr().err
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert cli(words) == 0
    assert json.loads(os.read(reader, 1 << 16))
    os.close(reader)
