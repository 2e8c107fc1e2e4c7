"""Full disks, folders that forbid, files that vanish or grow: one line, and nothing half."""

import os
import resource
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


def ended(words, folder, *, before=(), limit=None):
    """A command in a process of its own: its exit code and what it said."""

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run(
        [*before, sys.executable, "-m", "pinchpoint", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        preexec_fn=limited if limit else None,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # CPython keeps half of it where full
    )
    return done.returncode, done.stderr


def held(folder):
    """Files below a folder that are not empty, but for whole tables."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.suffix != ".csv"]
    return [p for p in files if p.stat().st_size]


@pytest.mark.parametrize("words", WRITES[:-1], ids=lambda w: f"{w[0]} {w[3]}")
def test_no_room_leaves_what_was_there(words, tmp_path):
    code, said = ended(words, tmp_path, limit=FULL_BYTES)
    assert code == 2
    assert "cannot be written" in said
    assert "bug" not in said
    assert held(tmp_path) == []


@pytest.mark.parametrize("words", WRITES, ids=lambda w: f"{w[0]} {w[3]}")
def test_a_folder_that_forbids_is_one_line(words, tmp_path):
    before = ()
    if os.geteuid() == 0:  # may write everywhere, unless that is taken from it
        if not (setpriv := shutil.which("setpriv")):
            pytest.skip("root, and no setpriv")
        before = (setpriv, "--bounding-set=-dac_override", "--inh-caps=-all")
    tmp_path.chmod(0o555)
    try:
        code, said = ended(words, tmp_path, before=before)
    finally:
        tmp_path.chmod(0o755)
    assert code == 2, said
    assert "ermission denied" in said
    assert list(tmp_path.iterdir()) == []


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
