"""Full disks, folders that forbid, files that vanish or grow: one line, and nothing half."""

import errno
import io
import json
import os
import shutil
import subprocess
import sys
from os import truncate
from pathlib import Path

import pytest

from fuzz.commands import RUNS_A_PROGRAM, good_files, places
from fuzz.readers import attacks
from fuzz.samples import samples
from pinchpoint import replacing
from pinchpoint.capture.launch.folder import new_run_folder
from pinchpoint.cli import main
from pinchpoint.cli.sharing import note
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


def test_two_notes_at_once_are_both_kept(tmp_path, monkeypatch):
    """Between reading the note and replacing it no other process has its turn."""
    fcntl = pytest.importorskip("fcntl")
    usual, asked = note.replacing, []

    def while_replacing(file):
        number = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(number)
        asked.append(file)
        return usual(file)

    monkeypatch.setattr(note, "replacing", while_replacing)
    shutil.copy(TRACE, tmp_path / "a.json.gz")
    assert [main(["note", str(tmp_path / "a.json.gz"), text]) for text in ("one", "two")] == [0, 0]
    assert len(asked) == 2
    assert [line.split()[1] for line in asked[0].read_text().splitlines()] == ["one", "two"]


def test_two_runs_of_one_moment_have_a_folder_each(tmp_path, monkeypatch):
    """Both looked for a name that is not there before either made its folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "exists", lambda path: False)
    made = {new_run_folder(None, "same") for _ in range(3)}
    assert len(made) == 3


class SlowRaw(io.FileIO):
    """A file of a network: a few bytes at a time; after ``lasts`` reads it is gone, or ``then``."""

    lasts = 10**9
    then = None

    def readinto(self, buffer):
        self.lasts -= 1
        if self.lasts < 0 and self.then is None:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), self.name)
        if self.lasts < 0:
            self.then()
        view = memoryview(buffer)
        return super().readinto(view[: min(len(view), 1000)])

    def readall(self):
        return b"".join(iter(lambda: self.read(1000), b""))


def over_a_network(monkeypatch, paths, lasts, then=None):
    """From now on these files are read so."""
    names, usual = set(map(str, paths)), io.open

    def opened(file, mode="r", buffering=-1, *more, **named):
        if str(file) not in names or mode != "rb":
            return usual(file, mode, buffering, *more, **named)
        raw = SlowRaw(str(file))
        raw.lasts, raw.then = lasts, then
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


@pytest.mark.parametrize("change", ["shorter", "longer"])
def test_a_file_that_changes_while_it_is_read_is_read_or_refused(
    change, tmp_path, monkeypatch, capsys
):
    """After the first thousand bytes of each reader's smallest file, and after four more."""
    (tmp_path / "made").mkdir()
    for name, attack in attacks(tmp_path / "made").items():
        path = tmp_path / name.replace(" ", "-") / attack.given
        if len(attack.files) > 1 or "/" in attack.given:
            continue
        for reads in (1, 5):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(raw := attack.files[attack.given])
            size = len(raw) // 2 if change == "shorter" else len(raw) + 5000
            with monkeypatch.context() as only_now:
                over_a_network(only_now, [path], reads, then=lambda p=path, n=size: truncate(p, n))
                code = main(["memory" if name in OF_MEMORY else "diagnose", str(path)])
            said = capsys.readouterr().err
            assert code in (0, 2), (name, said)
            assert code == 0 or "error: " in said, name


OF_MEMORY = ("snapshot", "memory timeline")


def written(folder, name):
    paths = []
    for place, raw in samples()[name].files.items():
        (folder / place).write_bytes(raw)
        paths.append(folder / place)
    return paths
