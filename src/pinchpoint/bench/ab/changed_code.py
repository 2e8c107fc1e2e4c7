"""What a commit changed: the functions whose lines differ from those of the base, from git."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex

_HUNK = regex(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@.*")
_FILE = "+++ b/"
_PYTHON = ".py"


@dataclass(frozen=True)
class Hunk:
    """Lines that stand in the place of others."""

    added: tuple[int, ...]  # as they are numbered now
    removed: tuple[int, ...]  # as they were numbered in the base


@dataclass(frozen=True)
class ChangedCode:
    """Changed lines of one function, or of a file outside of functions."""

    file: str  # below the top of the repository
    function: str  # as ``Net.forward``; empty outside of functions
    line: int  # the first that differs, as it is numbered now
    lines: int  # added, or removed where none was added
    text: str  # the first added line; empty where lines were only removed
    hunks: tuple[Hunk, ...] = ()

    @property
    def at(self) -> str:
        """``Net.forward (train.py:17)``."""
        return self.at_line(self.line)

    def at_line(self, line: int) -> str:
        """The same with another of its lines."""
        place = f"{Path(self.file).name}:{line}"
        return f"{self.function} ({place})" if self.function else place


def changed_code(base: str, now: str | None, folder: Path) -> tuple[ChangedCode, ...]:
    """From commit ``base`` to commit ``now``, or to what lies in the checkout of ``folder``.

    In the order of git. Blank lines and comments of Python are no change. Empty where git does not
    tell.
    """
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return ()
    where = Path(top.strip())
    plain = ("--unified=0", "--no-color", "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/")
    diff = _git(where, "-c", "core.quotePath=false", "diff", *plain, base, *filter(None, (now,)))
    found: dict[tuple[str, str], ChangedCode] = {}
    for file, line, added, removed in _hunks(diff or ""):
        python = file.endswith(_PYTHON)
        kept = [(n, text) for n, text in added if not python or _says(text)]
        gone = [n for n, text in removed if not python or _says(text)]
        if not kept and not gone:
            continue
        text = text_of(where, file, now) if python else ""
        at = kept[0][0] if kept else line
        function = _function_at(text, at)
        before = found.get((file, function))
        first = kept[0][1].strip() if kept else ""
        hunk = Hunk(tuple(n for n, _ in kept), tuple(gone))
        new = ChangedCode(file, function, at, len(kept or gone), first, (hunk,))
        found[file, function] = new if before is None else _both(before, new)
    return tuple(found.values())


def _both(first: ChangedCode, second: ChangedCode) -> ChangedCode:
    lines, text = first.lines + second.lines, first.text or second.text
    hunks = (*first.hunks, *second.hunks)
    return ChangedCode(first.file, first.function, first.line, lines, text, hunks)


def _says(line: str) -> bool:
    return bool(line.strip()) and not line.strip().startswith("#")


_Lines = list[tuple[int, str]]


def _hunks(diff: str) -> Iterator[tuple[str, int, _Lines, _Lines]]:
    """File, the first line now, the added lines with their numbers and the removed ones with
    theirs."""
    file, at, was_at, left = "", 0, 0, 0
    added: _Lines = []
    removed: _Lines = []
    # Only newlines end a line of git: a form feed in the source is no end of one.
    for line in [*diff.split("\n"), "diff "]:
        if left and line[:1] in "+-":
            left -= 1
            if line[0] == "+":
                added.append((at + len(added), line[1:]))
            else:
                removed.append((was_at + len(removed), line[1:]))
            continue
        if file and (added or removed) and not line.startswith("\\"):
            yield file, at, added, removed
            added, removed = [], []
        if line.startswith(_FILE):
            file = line.removeprefix(_FILE).rstrip("\t")
        elif line.startswith("diff "):
            file = ""
        elif hunk := _HUNK.fullmatch(line):
            was_at, at = max(int(hunk[1]), 1), max(int(hunk[3]), 1)
            left = int(hunk[2] or 1) + int(hunk[4] or 1)


def _function_at(text: str, line: int) -> str:
    """The innermost function that a line is in; empty outside of one, or where nothing is read."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return ".".join(_names(tree, line)) if _in_function(tree, line) else ""


def _names(node: ast.AST, line: int) -> list[str]:
    for child in ast.iter_child_nodes(node):
        first, last = getattr(child, "lineno", 0), getattr(child, "end_lineno", 0) or 0
        first = min([first, *(d.lineno for d in getattr(child, "decorator_list", ()))])
        if first <= line <= last:
            own = [child.name] if isinstance(child, _NAMED) else []
            return [*own, *_names(child, line)]
    return []


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NAMED = (*_FUNCTIONS, ast.ClassDef)


def _in_function(tree: ast.AST, line: int) -> bool:
    nodes = (node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))
    return any(n.lineno <= line <= (n.end_lineno or 0) for n in nodes)


def text_of(top: Path, file: str, now: str | None) -> str:
    """A file at a commit, or as it lies in the checkout; empty where there is none."""
    if now is not None:
        return _git(top, "show", f"{now}:{file}") or ""
    try:
        return (top / file).read_text("utf-8", errors="replace")
    except OSError:
        return ""


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, check=False)
    except OSError:
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
