import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pinchpoint.bench.ab.arms import branch_arms, command_arms, knob_arms, split_command
from pinchpoint.errors import UsageError


def test_two_commands():
    a, b = command_arms("python t.py --n 1", "python 'my file.py'")
    assert a.command == ("python", "t.py", "--n", "1")
    assert b.command == ("python", "my file.py")


@pytest.mark.parametrize("text", ["", "   ", "python 'x"])
def test_no_command(text):
    with pytest.raises(UsageError):
        split_command(text)


@pytest.mark.parametrize(
    ("command", "knob", "a", "b"),
    [
        pytest.param(
            ["t.py", "--w={w}"], "w=4,8", ("t.py", "--w=4"), ("t.py", "--w=8"), id="place"
        ),
        pytest.param(["t.py"], "w=4,8", ("t.py", "--w", "4"), ("t.py", "--w", "8"), id="appended"),
    ],
)
def test_a_knob(command, knob, a, b):
    first, second = knob_arms(command, knob)
    assert (first.command, second.command) == (a, b)
    assert (first.params, second.params) == ({"w": "4"}, {"w": "8"})


def test_an_environment_knob():
    a, b = knob_arms(["t.py"], "env:OMP_NUM_THREADS=1,4")
    assert (a.command, a.env) == (("t.py",), {"OMP_NUM_THREADS": "1"})
    assert b.env == {"OMP_NUM_THREADS": "4"}


@pytest.mark.parametrize("knob", ["w", "w=4", "w=4,8,16", "=1,2", "w=4,4"])
def test_a_knob_needs_two_values(knob):
    with pytest.raises(UsageError, match="two different values"):
        knob_arms(["t.py"], knob)


def test_branches_are_checked_out_and_cleaned_up(tmp_path, monkeypatch):
    for name in [n for n in os.environ if n.startswith("GIT_")]:
        monkeypatch.delenv(name)
    repository = tmp_path / "repository"
    repository.mkdir()
    monkeypatch.chdir(repository)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "init", "-q", "-b", "main"], check=True)
    for branch, text in (("main", "one"), ("faster", "two")):
        subprocess.run(["git", "checkout", "-q", "-B", branch], check=True)
        (repository / "a.txt").write_text(text)
        subprocess.run(["git", "add", "a.txt"], check=True)
        subprocess.run([*git, "commit", "-qm", text], check=True)
    (tmp_path / "cat").symlink_to("/bin/cat")
    command = ["../cat", "./a.txt", "./none"]  # beside the repository, in it, nowhere
    with branch_arms(command, ("main", "faster"), tmp_path / "trees", "touch built") as arms:
        assert [arm.command for arm in arms] == 2 * [
            (str(repository / "../cat"), "./a.txt", "./none")
        ]
        assert [(arm.cwd / "a.txt").read_text() for arm in arms] == ["one", "two"]
        assert all((arm.cwd / "built").exists() for arm in arms)
        assert len(arms[0].params["commit"]) == 40
    assert not list((tmp_path / "trees").iterdir())
    with (
        pytest.raises(UsageError, match="git worktree"),
        branch_arms(["cat"], ("main", "no-such"), tmp_path / "more", None),
    ):
        pass
    assert not list((tmp_path / "more").iterdir())
    with branch_arms(["cat"], ("main", "faster"), tmp_path / "used", None):
        left = [tmp_path / "left/A", tmp_path / "gone/A"]
        for tree in left:  # of processes that were killed; of one, the folder is gone as well
            subprocess.run(["git", "worktree", "add", "-q", "--detach", tree], check=True)
        shutil.rmtree(left[1].parent)
        subprocess.run(["git", "worktree", "add", "-q", "--detach", tmp_path / "mine"], check=True)
        known = Path(".git/worktrees")
        assert len(list(known.iterdir())) == 5
        for kept in known.iterdir():
            if kept.name != "mine":
                (kept / "pinchpoint.lock").touch()
                os.utime(kept / "pinchpoint.lock", (1, 1))
        with branch_arms(["cat"], ("main", "faster"), tmp_path / "next", None):
            assert len(list(known.iterdir())) == 5
            assert not left[0].exists()
            assert (tmp_path / "mine").exists()
