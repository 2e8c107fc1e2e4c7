"""How an option is spelled, said without importing the parser, which takes as long as a diagnosis.

A command whose words are only files needs no parser: ``files_alone``. Where there are options,
``for_parser`` puts cyclopts' own ``Parameter`` in place of these.
"""

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from inspect import CO_VARARGS
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pinchpoint.errors import UsageError
from pinchpoint.frozen import dataclass

Group = TypeVar("Group", bound=type)
_MARK = "spelled"
# Outputs that are written in one go, whatever stands there (``output.write_file``).
_TAKES_ALL = frozenset(("output", "out", "html", "svg", "junit", "prometheus", "parquet"))


@dataclass(frozen=True)
class Parameter:
    """See ``cyclopts.Parameter``; before a class, each of whose fields is an option: ``"*"``."""

    name: str | None = None
    negative: str | None = None

    def __call__(self, group: Group) -> Group:
        """Mark a class."""
        setattr(group, _MARK, self)
        return group


def files_alone(command: Callable[..., int], words: Sequence[str]) -> bool:
    """Whether a command takes any number of files and no word is anything else."""
    takes = command.__annotations__.get("files") is Path
    assert isinstance(command, FunctionType)
    any_number = bool(command.__code__.co_flags & CO_VARARGS)
    return takes and any_number and bool(words) and not any(w.startswith("-") for w in words)


@cache
def for_parser(command: Any) -> None:
    """Tell the parser of the options of a command what these here say; once is enough."""
    hints = command.__annotations__
    command.__annotations__ = {name: _as_theirs(hint, name) for name, hint in hints.items()}


def _as_theirs(hint: Any, name: str) -> Any:
    from cyclopts import Parameter as Theirs

    if get_origin(hint) is Annotated:
        kind, *notes = get_args(hint)
        own = [Theirs(**_said(n)) if isinstance(n, Parameter) else n for n in notes]
        return Annotated[_as_theirs(kind, name), *own]
    for kind in (hint, *get_args(hint)):
        if isinstance(kind, type) and is_dataclass(kind):
            _group_for_parser(kind)
    if (hint is Path or Path in get_args(hint)) and name not in _TAKES_ALL:
        return Annotated[hint, Theirs(validator=_file_or_folder)]
    return hint


@cache
def _group_for_parser(group: Any) -> None:
    from cyclopts import Parameter as Theirs

    mark = vars(group).get(_MARK)
    if isinstance(mark, Parameter):
        Theirs(**_said(mark))(group)
    for one in fields(group):
        one.type = group.__annotations__[one.name] = _as_theirs(one.type, one.name)


def _said(of: Parameter) -> dict[str, Any]:
    return {name: value for name, value in vars(of).items() if value is not None}


def _file_or_folder(kind: Any, given: Any) -> None:
    """UsageError for what may wait for ever, or give without end, when it is read or written."""
    for path in given if isinstance(given, list | tuple) else (given,):
        if not isinstance(path, Path) or str(path) == os.devnull:
            continue
        try:
            facts = path.stat()
            waits = stat.S_ISREG(facts.st_mode) and not facts.st_size and _waits(path)
        except (OSError, ValueError, RuntimeError):  # not there: whoever opens it says so
            continue
        if waits or not (stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)):
            what = "gives nothing yet" if waits else "a pipe, socket or device, not a file"
            raise UsageError(
                f"{path}: {what}",
                hint="write what it gives to a file, and read that",
            )


def _waits(path: Path) -> bool:
    """Whether reading would wait, as of a file of the kernel's that has no more to tell yet."""
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        os.read(number, 1)
    except BlockingIOError:
        return True
    finally:
        os.close(number)
    return False
