"""Which file of this machine a recorded place is in.

A recording is a stranger's: it may name any file. Only Python files below the folder that the
program ran in, the current folder, or the git tree around it are read, and only where the named
function is still at that line.
"""

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path, PurePath

from pinchpoint.frozen import dataclass

LARGEST_BYTES = 4 << 20  # a source file by hand is smaller


@dataclass(frozen=True)
class Source:
    """A Python file with its syntax tree."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def lines(self) -> list[str]:
        """Its lines, without ends."""
        return self.text.split("\n")

    def function_at(self, line: int) -> str | None:
        """The name of the innermost function around a line, decorators included, at the first of
        which Python has it begin; None if there is none."""
        around = self._innermost(line)
        return None if around is None else around.name

    def same_function(self, line: int, other: int) -> bool:
        """Whether two lines have the same innermost function around them: many functions of a file
        may have one name."""
        return self._innermost(line) is self._innermost(other)

    def _innermost(self, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        around = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and _first_line(node) <= line <= (node.end_lineno or node.lineno)
        ]
        return max(around, key=lambda node: node.lineno, default=None)

    def begins_at(self, line: int) -> bool:
        """Whether a function begins at a line, or its first decorator does."""
        return any(
            line in (node.lineno, *(one.lineno for one in node.decorator_list))
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )

    def statement_at(self, line: int) -> ast.stmt | None:
        """The smallest statement that covers a line."""
        around = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
        ]
        return max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0)), default=None)


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])


def source_of(file: str, line: int, function: str | None, roots: Sequence[Path]) -> Source | None:
    """The file, if it is at hand and still has this function at this line."""
    for path in _candidates(file, roots):
        found = _parsed(path, _changed(path))
        if found is not None and _still_there(found, line, function):
            return found
    return None


def roots_for(
    recording: Path, working_directory: str | None, command: Sequence[str] = ()
) -> tuple[Path, ...]:
    """Where the program of a recording may be: where it ran, beside its script, here, and the git
    tree around."""
    here = Path.cwd()
    near = recording if recording.is_dir() else recording.parent
    ran = [Path(working_directory)] if working_directory else []
    scripts = [word for word in command if word.endswith(".py")]
    ran += [(folder / scripts[0]).parent for folder in ran if scripts]
    trees = [tree for place in (here, near.absolute()) if (tree := _git_tree(place))]
    return tuple(dict.fromkeys(p.resolve() for p in (*ran, here, *trees) if p.is_dir()))


def _git_tree(folder: Path) -> Path | None:
    return next((p for p in (folder, *folder.parents) if (p / ".git").exists()), None)


def _candidates(file: str, roots: Sequence[Path]) -> Iterator[Path]:
    """Paths below the roots that are the recorded one, or end like it: folder and name at least.

    A bare name is only looked for in the roots themselves: many programs have a ``train.py``.
    """
    parts = [part for part in PurePath(file.replace("\\", "/")).parts if part != "/"]
    if not parts or not parts[-1].endswith(".py") or ".." in parts:
        return
    for root in roots:
        for length in range(len(parts), 0, -1):
            same_folder = length > 1 or len(parts) == 1 or root.name == parts[-2]
            path = root.joinpath(*parts[-length:])
            if same_folder and path.is_file() and path.resolve().is_relative_to(root):
                yield path
                break


def _changed(path: Path) -> tuple[int, int]:
    """What tells a file from itself after an edit, which a notebook or a server lives to see."""
    try:
        facts = path.stat()
    except OSError:
        return 0, 0
    return facts.st_mtime_ns, facts.st_size


@lru_cache(maxsize=1 << 8)  # a report names some ten files, and each takes as many times its text
def _parsed(path: Path, changed: tuple[int, int]) -> Source | None:
    try:
        if changed[1] > LARGEST_BYTES:
            return None
        text = path.read_text("utf-8")
        return Source(path, text, ast.parse(text))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _still_there(source: Source, line: int, function: str | None) -> bool:
    if not 0 < line <= len(source.lines) or source.statement_at(line) is None:
        return False
    name = None if function in (None, "<module>") else (function or "").rpartition(".")[2]
    return function is None or name is None or source.function_at(line) == name
