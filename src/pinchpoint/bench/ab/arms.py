"""What A and B are: two commands, two branches, or one knob with two values."""

import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pinchpoint.bench.run import Arm
from pinchpoint.errors import UsageError

ENV_PREFIX = "env:"


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
    made: list[Path] = []
    try:
        arms = []
        for name, branch in zip("AB", branches, strict=True):
            tree = (trees / name).resolve()
            _git("worktree", "add", "--detach", "--force", str(tree), branch)
            made.append(tree)
            if setup:
                _prepare(setup, tree)
            commit = _git("-C", str(tree), "rev-parse", "HEAD")
            params = {"branch": branch, "commit": commit}
            arms.append(Arm(name, tuple(command), cwd=tree, params=params))
        yield arms[0], arms[1]
    finally:
        for tree in made:
            _git("worktree", "remove", "--force", str(tree))


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
