"""How an option is spelled, said without importing the parser, which takes as long as a diagnosis.

Files and switches need no parser: ``without_parser``. Where there are other options, ``for_parser``
puts cyclopts' own ``Parameter`` in place of these.
"""

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
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


@dataclass(frozen=True)
class Plain:
    """What to call a command with."""

    files: list[Path]
    options: dict[str, Any]


def without_parser(command: Callable[..., int], words: Sequence[str]) -> Plain | None:
    """Files and switches of a command that takes any number of files; None if any word is more.

    A switch takes no value and stands once, spelled as its help spells it. What is said otherwise,
    or wrongly, is the parser's to read.
    """
    assert isinstance(command, FunctionType)
    takes = command.__annotations__.get("files") is Path
    if not takes or not command.__code__.co_flags & CO_VARARGS:
        return None
    files = [Path(word) for word in words if not word.startswith("-")]
    said = [word for word in words if word.startswith("-")]
    if not files or len(set(said)) < len(said):
        return None
    given = dict(command.__kwdefaults__ or {})
    known = _switches(command) if said else {}
    for word in said:
        if word not in known:
            return None
        name, field = known[word]
        given[name] = True if field is None else replace(given[name], **{field: True})
    return Plain(files, given)


def _switches(command: FunctionType) -> dict[str, tuple[str, str | None]]:
    """The option, and the field of it where it is a group, that each switch sets."""
    found: dict[str, tuple[str, str | None]] = {}
    for name, hint in command.__annotations__.items():
        mark = vars(hint).get(_MARK) if isinstance(hint, type) else None
        if isinstance(mark, Parameter) and mark.name == "*" and is_dataclass(hint):
            hints = {one.name: one.type for one in fields(hint)}
            found |= {_spelt(field): (name, field) for field in hints if _is_switch(hints[field])}
        elif _is_switch(hint):
            found[_spelt(name)] = (name, None)
    return found


def _is_switch(hint: Any) -> bool:
    if get_origin(hint) is not Annotated:
        return False
    kind, *notes = get_args(hint)
    return kind is bool and notes == [Parameter(negative="")]


def _spelt(name: str) -> str:
    return "--" + name.replace("_", "-")


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
