import subprocess

import pytest

from pinchpoint.bench.ab.arms import commits_between, earlier_commit, is_shallow_without
from pinchpoint.bench.ab.bisect import (
    Tried,
    bisect,
    keep_state,
    known_from,
    left_of,
    most_comparisons,
)
from pinchpoint.errors import UsageError
from pinchpoint.report import terminal
from pinchpoint.report.pages.ab import bisect_page
from pinchpoint.report.pages.result import blocks

COMMITS = tuple("abcdefgh")


def _judge(first_bad, *, open_at=()):
    asked = []

    def judge(commit):
        asked.append(commit)
        verdict = "regressed" if commit >= first_bad else "pass"
        verdict = "inconclusive" if commit in open_at else verdict
        return Tried(commit=commit, verdict=verdict, why="")

    return judge, asked


@pytest.mark.parametrize("first_bad", COMMITS)
def test_every_first_bad_commit_is_found_in_few_comparisons(first_bad):
    judge, asked = _judge(first_bad)
    found = bisect("good", COMMITS, judge)
    assert (found.verdict, found.first_bad, found.exit_code) == ("found", first_bad, 0)
    assert len(asked) <= 4  # the last one, and three halves of eight


def test_without_a_difference_there_is_nothing_to_search():
    judge, asked = _judge("z")
    found = bisect("good", COMMITS, judge)
    assert (found.verdict, found.left, asked) == ("not worse", (), ["h"])
    assert found.exit_code == 4


def test_a_long_reason_goes_below_its_commit():
    why = "wall time: B takes 12.3 % longer (8.1 to 15.9 %), " * 3 + "the end"
    tried = Tried(commit="a", verdict="regressed", why=why, change_ratio=0.123)
    said = terminal.render(blocks(bisect_page(bisect("good", ("a",), lambda _: tried))))
    assert "regressed  12.3 % worse" in said
    assert "the end" in said
    assert max(map(len, said.splitlines())) <= 80


def test_what_pairs_do_not_decide_leaves_a_range():
    judge, _ = _judge("d", open_at=("d",))
    found = bisect("good", COMMITS, judge)
    assert (found.verdict, found.first_bad) == ("inconclusive", None)
    assert found.left == tuple("abcdefgh")


def test_a_search_goes_on_where_another_was_interrupted(tmp_path):
    """What is known is not compared again, and what did not decide is."""
    judge, asked = _judge("d", open_at=("b",))
    first = bisect("good", COMMITS, judge)
    assert (asked, first.left) == (["h", "d", "b"], tuple("abcd"))
    of = {"good commit": "g", "command": "python a.py", "threshold": "3%"}
    keep_state(tmp_path, of, first.tried)
    judge, asked = _judge("d")
    found = bisect("good", COMMITS, judge, known_from(tmp_path, of))
    assert (found.first_bad, asked) == ("d", ["b", "c"])
    with pytest.raises(UsageError, match="of another threshold"):
        known_from(tmp_path, of | {"threshold": "5%"})
    (tmp_path / "tried.json").write_text("{}")
    with pytest.raises(UsageError, match="cannot be read"):
        known_from(tmp_path, of)


@pytest.mark.parametrize(("commits", "most"), [(1, 1), (2, 2), (3, 3), (8, 4), (9, 5)])
def test_how_many_comparisons_there_can_be(commits, most):
    asked = []
    for first_bad in range(commits):

        def judge(commit, first_bad=first_bad):
            asked[-1] += 1
            verdict = "regressed" if commit >= first_bad else "pass"
            return Tried(commit=commit, verdict=verdict, why="")

        asked.append(0)
        bisect("good", range(commits), judge)
    assert max(asked) == most == most_comparisons(commits)


def test_what_is_left_does_not_depend_on_the_order_of_what_is_known():
    tried = [Tried(commit=c, verdict=v, why="") for c, v in (("b", "pass"), ("f", "regressed"))]
    assert left_of(COMMITS, tried) == left_of(COMMITS, tried[::-1]) == tuple("cdef")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(("git", *who, *words), check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q")
    made = []
    for text in ("one", "two", "three"):
        (tmp_path / "a.py").write_text(text)
        git("add", "a.py")
        git("commit", "-q", "-m", text)
        made.append(git("rev-parse", "HEAD"))
    return made


def test_commits_between_two(repository):
    assert commits_between(repository[0], "HEAD") == tuple(repository[1:])
    with pytest.raises(UsageError, match="does not follow"):
        commits_between("HEAD", repository[0])


def test_a_shallow_clone_may_lack_the_commit_before(repository, tmp_path, monkeypatch):
    assert not is_shallow_without(repository[0])
    clone = tmp_path / "clone"
    source = tmp_path.as_uri()
    subprocess.run(("git", "clone", "-q", "--depth", "1", source, str(clone)), check=True)
    monkeypatch.chdir(clone)
    assert is_shallow_without(repository[0])
    assert not is_shallow_without(repository[2])
    assert not is_shallow_without(None)


def test_a_commit_before_the_change_is_at_hand(repository):
    assert earlier_commit(repository[1]) == repository[1]
    assert earlier_commit(repository[2]) is None  # the files are the same
    assert earlier_commit("0" * 40) is None
    assert earlier_commit(None) is None


def test_a_branch_is_compared_with_where_it_left_what_it_does_not_contain(repository, tmp_path):
    """What the other side gained since is no change of the branch."""
    git = ("git", "-C", str(tmp_path))
    subprocess.run((*git, "checkout", "-q", "-b", "stale", repository[1]), check=True)
    (tmp_path / "README.md").write_text("another word")
    subprocess.run((*git, "add", "README.md"), check=True)
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run((*git, *who, "commit", "-q", "-m", "a page"), check=True)
    assert earlier_commit(repository[2]) == repository[1]
    assert earlier_commit(repository[1]) == repository[1]
