"""Full disks, folders that forbid, files that vanish or grow: one line, and nothing half."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.samples import samples
from pinchpoint.cli import main
from pinchpoint.importers import open as opening

DATA = Path(__file__).parents[1] / "data"
TRACE = DATA / "kineto/cpu_files_workers0.json.gz"
MEMORY = DATA / "memory/leak_graph.pickle.gz"
WRITES = [
    ("report", str(TRACE), "-o", "out"),
    ("diagnose", str(TRACE), "--html", "out"),
    ("memory", str(MEMORY), "--html", "out"),
    *(("export", str(TRACE), "--to", to, "-o", "out") for to in ("chrome", "csv", "speedscope")),
    ("compare", str(TRACE), str(TRACE), "--html", "out"),
    ("ranks", str(TRACE), "--shard", "1/1", "-o", "out"),
    ("run", "-o", "out", "--", sys.executable, "-c", "pass"),
]
FULL_BYTES = 1000  # every output is larger, each alone


# Each command in a folder of its own, in one process: starting Python takes longer than they do.
EACH = """
import contextlib, io, json, os, resource, sys
from pinchpoint.cli import main
limit, *commands = json.loads(sys.stdin.read())
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for folder, words in commands:
    os.chdir(folder)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = main(words)
    print("ENDED " + json.dumps([code, said.getvalue()]))
"""


def ended(commands, folders, *, before=(), limit=None):
    """What becomes of each command in its folder: its exit code and what it said."""
    todo = [[str(folder), words] for folder, words in zip(folders, commands, strict=True)]
    done = subprocess.run(
        [*before, sys.executable, "-c", EACH],
        input=json.dumps([limit, *todo]),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # CPython keeps half of it where full
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("ENDED ")]
    return [json.loads(line.removeprefix("ENDED ")) for line in lines]


def held(folder):
    """Files below a folder that are not empty, but for whole tables."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.suffix != ".csv"]
    return [p for p in files if p.stat().st_size]


def folders_for(commands, tmp_path):
    folders = [tmp_path / str(i) for i, _ in enumerate(commands)]
    for folder in folders:
        folder.mkdir()
    return folders


def test_no_room_leaves_what_was_there(tmp_path):
    commands = WRITES[:-1]
    folders = folders_for(commands, tmp_path)
    answers = ended(commands, folders, limit=FULL_BYTES)
    for words, folder, (code, said) in zip(commands, folders, answers, strict=True):
        assert code == 2, words
        assert "cannot be written" in said, words
        assert "bug" not in said, words
        assert held(folder) == [], words


def test_a_folder_that_forbids_is_one_line(tmp_path):
    before = ()
    if os.geteuid() == 0:  # may write everywhere, unless that is taken from it
        if not (setpriv := shutil.which("setpriv")):
            pytest.skip("root, and no setpriv")
        before = (setpriv, "--bounding-set=-dac_override", "--inh-caps=-all")
    folders = folders_for(WRITES, tmp_path)
    for folder in folders:
        folder.chmod(0o555)
    try:
        answers = ended(WRITES, folders, before=before)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    for words, folder, (code, said) in zip(WRITES, folders, answers, strict=True):
        assert code == 2, (words, said)
        assert "ermission denied" in said, words
        assert list(folder.iterdir()) == [], words


@pytest.mark.parametrize("name", ["zip", "tar", "perfetto", "rocprofv3", "ascend table"])
def test_a_file_that_vanishes_is_said(name, tmp_path, monkeypatch, capsys):
    paths = written(tmp_path, name)
    look = opening._look

    def look_then_lose(path):
        head = look(path)
        if path == paths[0]:
            path.unlink()
        return head

    monkeypatch.setattr(opening, "_look", look_then_lose)
    assert main(["diagnose", str(paths[0])]) == 2
    said = capsys.readouterr().err
    assert str(paths[0]) in said
    assert "bug" not in said


@pytest.mark.parametrize(
    "name", ["zip", "perfetto", "rocprofv3", "rocprofv3 csv", "ascend table", "memory timeline"]
)
def test_a_file_that_grows_is_read_or_refused(name, tmp_path, monkeypatch, capsys):
    paths = written(tmp_path, name)
    look = opening._look

    def look_then_grow(path):
        head = look(path)
        if path == paths[0]:
            with path.open("ab") as file:
                file.write(samples()[name].files[path.name][:50])
        return head

    monkeypatch.setattr(opening, "_look", look_then_grow)
    assert main([samples()[name].commands[0], str(paths[0])]) in (0, 2)
    assert "bug" not in capsys.readouterr().err


def written(folder, name):
    paths = []
    for place, raw in samples()[name].files.items():
        (folder / place).write_bytes(raw)
        paths.append(folder / place)
    return paths
