"""How an option is spelled, said without importing the parser, which takes as long as a diagnosis.

A command whose words are only files needs no parser: ``files_alone``. Where there are options,
``for_parser`` puts cyclopts' own ``Parameter`` in place of these.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from inspect import CO_VARARGS
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pinchpoint.frozen import dataclass

Group = TypeVar("Group", bound=type)
_MARK = "spelled"


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


def for_parser(command: Any) -> None:
    """Tell the parser of the options of a command what these here say."""
    command.__annotations__ = {n: _as_theirs(hint) for n, hint in command.__annotations__.items()}


def _as_theirs(hint: Any) -> Any:
    from cyclopts import Parameter as Theirs

    def theirs(of: Parameter) -> Theirs:
        said = {k: v for k, v in vars(of).items() if v is not None}
        return Theirs(**said)

    if get_origin(hint) is Annotated:
        kind, *notes = get_args(hint)
        return Annotated[kind, *(theirs(n) if isinstance(n, Parameter) else n for n in notes)]
    if isinstance(hint, type) and isinstance(mark := vars(hint).get(_MARK), Parameter):
        delattr(hint, _MARK)  # once is enough
        for one in fields(hint):
            one.type = hint.__annotations__[one.name] = _as_theirs(one.type)
        theirs(mark)(hint)
    return hint
