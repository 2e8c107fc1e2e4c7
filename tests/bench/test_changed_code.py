import subprocess

import pytest

from pinchpoint.bench.ab.changed_code import ChangedCode, Hunk, changed_code

BEFORE = """
class Net:
    def forward(self, x):
        # a comment
        return x @ x

    def embed(self, x):
        return x


RATE = 1
"""
AFTER = """
class Net:
    def forward(self, x):
        # another comment

        x = x + x
        return x @ x

    def embed(self, x):
        return x


RATE = 2
"""


@pytest.fixture
def repository(tmp_path):
    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(
            ("git", *who, *words), cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/train.py").write_text(BEFORE)
    (tmp_path / "data.txt").write_text("1\n2\n")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    return tmp_path, git


FORWARD = ChangedCode("sub/train.py", "Net.forward", 6, 1, "x = x + x", (Hunk((6,), ()),))
RATE = ChangedCode("sub/train.py", "", 13, 1, "RATE = 2", (Hunk((13,), (11,)),))


def test_functions_whose_lines_differ_from_the_base(repository):
    folder, git = repository
    (folder / "sub/train.py").write_text(AFTER)
    assert changed_code("HEAD", None, folder / "sub") == (FORWARD, RATE)
    assert (FORWARD.at, RATE.at) == ("Net.forward (train.py:6)", "train.py:13")
    git("commit", "-qam", "two")
    (folder / "sub/train.py").write_text("")  # of the commit, not of what lies there now
    assert changed_code("HEAD~1", "HEAD", folder) == (FORWARD, RATE)


def test_comments_and_blank_lines_are_no_change(repository):
    folder, _ = repository
    (folder / "sub/train.py").write_text(BEFORE.replace("a comment", "b").replace("\n\n\n", "\n\n"))
    assert changed_code("HEAD", None, folder) == ()


def test_removed_lines_and_other_files_are_told(repository):
    folder, _ = repository
    (folder / "data.txt").write_text("1\n")
    (folder / "sub/train.py").write_text(BEFORE.replace("        return x\n\n", "        pass\n\n"))
    data, embed = changed_code("HEAD", None, folder)
    assert (data.at, data.lines, data.text) == ("data.txt:1", 1, "")
    assert (embed.function, embed.text) == ("Net.embed", "pass")


def test_lines_that_look_like_those_of_a_diff_are_read_as_lines(repository):
    folder, _ = repository
    (folder / "data.txt").write_text("1\n2\n++ b/other.py\n-- a\n@@ -1 +1 @@\n")
    [one] = changed_code("HEAD", None, folder)
    assert (one.file, one.lines, one.text) == ("data.txt", 3, "++ b/other.py")


def test_where_git_does_not_tell_nothing_is_said(tmp_path):
    assert changed_code("HEAD", None, tmp_path) == ()
