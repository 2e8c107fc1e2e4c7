"""What A and B are: two commands, two branches, or one knob with two values."""

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pinchpoint.bench.run import Arm
from pinchpoint.errors import UsageError
from pinchpoint.replacing import held, left_behind

ENV_PREFIX = "env:"
_IN_USE = "pinchpoint.lock"  # in what git keeps of a checkout; locked while it is measured


def split_command(text: str) -> tuple[str, ...]:
    """A command as one text, split as a shell would; nothing else of a shell applies."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}", hint="check the quotes") from None
    if not words:
        raise UsageError("the command is empty", hint='pinchpoint bench ab -- "A" "B"')
    return words


def command_arms(a: str, b: str) -> tuple[Arm, Arm]:
    """Two commands."""
    return (
        Arm("A", split_command(a), params={"command": a}),
        Arm("B", split_command(b), params={"command": b}),
    )


def knob_arms(command: Sequence[str], knob: str) -> tuple[Arm, Arm]:
    """One command and ``name=first,second``.

    ``{name}`` in the command is replaced; ``env:NAME=a,b`` sets an environment variable; a knob
    that is in neither place is appended as ``--name value``.
    """
    name, equals, values = knob.partition("=")
    both = values.split(",")
    if not equals or len(both) != 2 or not name or both[0] == both[1]:
        raise UsageError(
            f"--knob {knob}: expected name=value,value with two different values",
            hint="for example --knob num_workers=4,8 or --knob env:OMP_NUM_THREADS=1,4",
        )
    return (set_knob("A", command, name, both[0]), set_knob("B", command, name, both[1]))


def set_knob(arm: str, command: Sequence[str], name: str, value: str) -> Arm:
    """The command with one knob set."""
    if name.startswith(ENV_PREFIX):
        variable = name.removeprefix(ENV_PREFIX)
        return Arm(arm, tuple(command), env={variable: value}, params={name: value})
    place = f"{{{name}}}"
    if any(place in word for word in command):
        words = tuple(word.replace(place, value) for word in command)
    else:
        words = (*command, f"--{name}", value)
    return Arm(arm, words, params={name: value})


@contextmanager
def branch_arms(
    command: Sequence[str], branches: tuple[str, str], trees: Path, setup: str | None
) -> Iterator[tuple[Arm, Arm]]:
    """The command in a checkout of each branch; both are built before anything is measured.

    The checkouts are git worktrees below ``trees`` and are removed at the end.
    """
    with ExitStack() as made:
        arms = [
            made.enter_context(branch_arm(name, command, branch, trees, setup))
            for name, branch in zip("AB", branches, strict=True)
        ]
        yield arms[0], arms[1]


@contextmanager
def branch_arm(
    name: str, command: Sequence[str], branch: str, trees: Path, setup: str | None = None
) -> Iterator[Arm]:
    """The command in a checkout of one branch or commit, which is removed at the end.

    What killed processes left of theirs is removed first.
    """
    tree = (trees / name).resolve()
    _remove_left_behind()
    _git("worktree", "add", "--detach", "--force", str(tree), branch)
    try:
        used = Path(_git("-C", str(tree), "rev-parse", "--absolute-git-dir"), _IN_USE)
        used.touch()
        with held(used):
            yield _arm_in(tree, name, command, branch, setup)
    finally:
        _git("worktree", "remove", "--force", str(tree))


def _remove_left_behind() -> None:
    kept = Path(_git("rev-parse", "--git-common-dir"), "worktrees")
    for used in left_behind(kept, f"*/{_IN_USE}"):
        with suppress(OSError, UsageError):  # no longer known to git
            tree = Path((used.parent / "gitdir").read_text().strip()).parent
            _git("worktree", "remove", "--force", str(tree))


def _arm_in(tree: Path, name: str, command: Sequence[str], branch: str, setup: str | None) -> Arm:
    if setup:
        _prepare(setup, tree)
    commit = _git("-C", str(tree), "rev-parse", "HEAD")
    # In the folder of the checkout that this one is in its own, and with its files and modules.
    below, here = _git("rev-parse", "--show-prefix"), _git("rev-parse", "--show-toplevel")
    words = tuple(_found(_moved(word, here, str(tree)), tree / below) for word in command)
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    env = {"PYTHONPATH": os.pathsep.join(_moved(p, here, str(tree)) for p in path)}
    params = {"branch": branch, "commit": commit}
    return Arm(name, words, cwd=tree / below, env=env if any(path) else {}, params=params)


def _moved(path: str, here: str, there: str) -> str:
    """A path of this checkout as the one of the other, if git has it; others stay."""
    known = path.startswith(here + os.sep) and Path(there, os.path.relpath(path, here)).exists()
    return there + path.removeprefix(here) if known or path == here else path


def _found(word: str, folder: Path) -> str:
    """A relative path that git does not have, such as of an environment or of data, in full."""
    path = Path.cwd() / word  # links stay as they are: an environment's python is one
    lost = os.sep in word and path.exists() and not (folder / word).exists()
    return str(path) if lost else word


def commits_between(good: str, bad: str) -> tuple[str, ...]:
    """The commits after ``good`` up to ``bad``, oldest first, along first parents.

    UsageError if ``bad`` does not follow ``good``.
    """
    found = _git("rev-list", "--reverse", "--first-parent", f"{good}..{bad}").split()
    if not found or _git("merge-base", good, bad) != _git("rev-parse", f"{good}^{{commit}}"):
        raise UsageError(f"{bad} does not follow {good}", hint="--good OLDER --bad NEWER")
    return tuple(found)


def commit_of(name: str) -> str:
    """The full number of a commit, tag or branch; UsageError if there is none of that name."""
    return _git("rev-parse", "--verify", f"{name}^{{commit}}")


def earlier_commit(commit: str | None) -> str | None:
    """``commit`` if this is a checkout that has it, and its files are not what lies here.

    Of a branch that does not contain it, the commit at which the two parted: what the other side
    gained or lost since is no change of this one.
    """
    if commit is None:
        return None
    try:
        known = _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
        parted = _parted(known)
        same = not _git("diff", "--name-only", parted)
    except UsageError:  # no repository, or one without it
        return None
    return None if same else parted


def _parted(commit: str) -> str:
    try:
        return _git("merge-base", "HEAD", commit)
    except UsageError:  # histories without a common beginning, or a clone without it
        return commit


def checkout_of(folder: Path) -> Path | None:
    """The top of the checkout that a folder is in; None where it is in none."""
    try:
        return Path(_git("-C", str(folder), "rev-parse", "--show-toplevel"))
    except UsageError:
        return None


def is_shallow_without(commit: str | None) -> bool:
    """Whether this is a clone of a part of the history, and ``commit`` is not in it."""
    if commit is None:
        return False
    try:
        if _git("rev-parse", "--is-shallow-repository") != "true":
            return False
        return (
            subprocess.run(["git", "cat-file", "-e", commit], capture_output=True).returncode != 0
        )
    except UsageError:  # no repository
        return False


def _prepare(setup: str, tree: Path) -> None:
    done = subprocess.run(
        split_command(setup), cwd=tree, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-1:] or ["no output"]
        raise UsageError(f"{setup}: failed in {tree.name} ({said[0]})", hint="fix the set-up")


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise UsageError(f"git: {error.strerror}", hint="branches need git") from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["failed"])[-1]
        raise UsageError(f"git {arguments[0]}: {said}", hint="are both names branches or commits?")
    return done.stdout.strip()
