"""Full disks, folders that forbid, files that vanish or grow: one line, and nothing half."""

import errno
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.commands import RUNS_A_PROGRAM, good_files, places
from fuzz.samples import samples
from pinchpoint import replacing
from pinchpoint.cli import main
from pinchpoint.importers import open as opening

DATA = Path(__file__).parents[1] / "data"
TRACE = DATA / "kineto/cpu_files_workers0.json.gz"
FULL_BYTES = 1000  # every output is larger, each alone


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Sound files of the kinds that commands take, by the name of the place."""
    return good_files(tmp_path_factory.mktemp("good")) | {"FILE": str(TRACE)}


@pytest.fixture(scope="module")
def writes(good):
    """Every command that writes, as often as it has names for what it writes."""
    found = [p for p in places(good) if p.is_output and not p.command.startswith(RUNS_A_PROGRAM)]
    words = [(*p.before, "out", *p.after) for p in found]
    tables = [("export", str(TRACE), "--to", to, "-o", "out") for to in ("chrome", "csv")]
    return [w for w in words if w[0] != "bench"] + tables  # which need a baseline


@pytest.fixture(scope="module")
def reads(good):
    """Every command that reads a recording."""
    found = [p for p in places(good) if p.name in ("FILE", "FILES", "A")]
    assert len(found) > 8
    return [(*p.before, good.get(f"{p.command} {p.name}", str(TRACE)), *p.after) for p in found]


# Each command in a folder of its own, in one process: starting Python takes longer than they do.
EACH = """
import contextlib, io, json, os, resource, sys
from pinchpoint.cli import main
answers = os.fdopen(os.dup(1), "w")  # a command may close what it cannot write to
limit, *commands = json.loads(sys.stdin.read())
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for folder, words in commands:
    os.chdir(folder)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = main(words)
    print("\\nENDED " + json.dumps([code, said.getvalue()]), file=answers, flush=True)
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


def test_no_room_leaves_what_was_there(tmp_path, writes):
    commands = [words for words in writes if not {"--junit", "--svg"} & set(words)]  # few bytes
    folders = folders_for(commands, tmp_path)
    answers = ended(commands, folders, limit=FULL_BYTES)
    for words, folder, (code, said) in zip(commands, folders, answers, strict=True):
        assert code == 2, words
        assert "File too large" in said, (words, said)
        assert "bug" not in said, words
        assert held(folder) == [], words


def test_no_room_for_even_one_file_of_a_folder(tmp_path):
    shutil.copy(TRACE, tmp_path / TRACE.name)
    (tmp_path / f"{TRACE.name}.note.md").write_text("kept\n")
    commands = [
        ("bench", "run", "-o", "out", "-p", "1", "--", "true"),
        ("note", f"../{TRACE.name}", "text"),
        ("export", str(TRACE), "--to", "tensorboard", "-o", "out"),
    ]
    folders = folders_for(commands, tmp_path)
    for words, folder, (code, said) in zip(
        commands, folders, ended(commands, folders, limit=1), strict=True
    ):
        assert code == 2, (words, said)
        assert [p for p in folder.rglob("*") if p.is_file()] == [], words
    assert (tmp_path / f"{TRACE.name}.note.md").read_text() == "kept\n"


def test_a_folder_that_forbids_is_one_line(tmp_path, writes):
    writes = [*writes, ("run", "-o", "out", "--", sys.executable, "-c", "pass")]
    before = ()
    if os.geteuid() == 0:  # may write everywhere, unless that is taken from it
        if not (setpriv := shutil.which("setpriv")):
            pytest.skip("root, and no setpriv")
        before = (setpriv, "--bounding-set=-dac_override", "--inh-caps=-all")
    folders = folders_for(writes, tmp_path)
    for folder in folders:
        folder.chmod(0o555)
    try:
        answers = ended(writes, folders, before=before)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    for words, folder, (code, said) in zip(writes, folders, answers, strict=True):
        assert code == 2, (words, said)
        assert "ermission denied" in said, words
        assert list(folder.iterdir()) == [], words


def test_two_that_write_the_same_leave_one_of_them_whole(tmp_path, writes, monkeypatch, capsys):
    """The second begins and ends while the first has written all but not put it in its place."""
    move, busy = replacing._move, []

    def after_the_other(beside, target, *, there):
        if not busy:
            busy.append(True)
            codes.append(main(list(words)))
        move(beside, target, there=target.exists())

    monkeypatch.setattr(replacing, "_move", after_the_other)
    for folder, words in zip(folders_for(writes, tmp_path), writes, strict=True):
        monkeypatch.chdir(folder)
        codes = []
        busy.clear()
        codes.append(main(list(words)))
        assert codes in ([0, 0], [0]), (words, codes, capsys.readouterr().err)
        (only,) = folder.iterdir()
        assert held(folder) or only.is_dir(), words
        assert not list(folder.rglob(".pinchpoint-*")), words


class SlowRaw(io.FileIO):
    """A file of a network: a few bytes at a time, and gone for good after ``lasts`` reads."""

    lasts = 10**9

    def readinto(self, buffer):
        self.lasts -= 1
        if self.lasts < 0:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), self.name)
        view = memoryview(buffer)
        return super().readinto(view[: min(len(view), 1000)])

    def readall(self):
        return b"".join(iter(lambda: self.read(1000), b""))


def over_a_network(monkeypatch, paths, lasts):
    """From now on these files are read so."""
    names, usual = set(map(str, paths)), io.open

    def opened(file, mode="r", buffering=-1, *more, **named):
        if str(file) not in names or mode != "rb":
            return usual(file, mode, buffering, *more, **named)
        raw = SlowRaw(str(file))
        raw.lasts = lasts
        return raw if buffering == 0 else io.BufferedReader(raw)

    monkeypatch.setattr(io, "open", opened)
    monkeypatch.setattr("builtins.open", opened)


def answer(words, capsys):
    capsys.readouterr()
    return main(list(words)), capsys.readouterr().out


FORMATS = [name for name in samples() if name not in ("run folder", "execution trace")]


def test_files_of_a_network_are_read_as_others(tmp_path, reads, monkeypatch, capsys):
    paths = [written(made(tmp_path / n.replace(" ", "-")), n)[0] for n in FORMATS]
    commands = [(samples()[n].commands[0], str(p)) for n, p in zip(FORMATS, paths, strict=True)]
    usual = [answer(words, capsys) for words in commands]
    assert {code for code, _ in usual} == {0}
    over_a_network(monkeypatch, paths, 10**9)
    assert [answer(words, capsys) for words in commands] == usual
    for lasts in (0, 1, 3):
        over_a_network(monkeypatch, [*paths, *{w for words in reads for w in words}], lasts)
        for words in [*commands, *reads]:
            monkeypatch.chdir(made(tmp_path / f"{lasts}-{words[0]}"))
            code = main([*words, "-o", "out"] if words[0] == "report" else list(words))
            said = capsys.readouterr().err
            assert code in (0, 2), (words, lasts, said)
            assert code == 0 or "tale" in said, (words, lasts, said)
            assert not list(Path.cwd().rglob(".pinchpoint-*")), words


def made(folder):
    folder.mkdir(exist_ok=True)
    return folder


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
