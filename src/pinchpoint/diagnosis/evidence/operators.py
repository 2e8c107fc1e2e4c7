"""What is known about operators that are slow: ``operators.json``, and a file of the user's own.

Entries of that file, of the same form, come first: ``$PINCHPOINT_OPERATORS``, else
``pinchpoint/operators.json`` in the user's data folder.
"""

import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

from pinchpoint.errors import UnreadableFile
from pinchpoint.json_text import decoded
from pinchpoint.regex import regex
from pinchpoint.replacing import read_bounded


class Known(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the table; the first that fits is told."""

    operators: tuple[str, ...] = ()  # regular expressions, found in the operator's name
    inside: tuple[str, ...] = ()  # of operators around it, which make it do the same in each call
    kernels: tuple[str, ...] = ()  # the same for its longest kernel; where both are given, both fit
    over_one_dimension: bool = True  # it is meant for convolutions over one dimension as well
    across_layouts: bool = False  # it is meant only where operands lie in memory in two orders
    on_cpu: bool = False  # it holds on a CPU as well
    only_on_cpu: bool = False  # it holds on a CPU, and not on a device
    avoidable: bool = False  # the same result can be had at the machine's limit
    always: bool = False  # the reason holds wherever it runs: told without knowing its limit
    rate_unknown: bool = False  # on a device; what another way wins needs counters or a trial
    why: str  # after "because"
    instead: str  # an imperative
    example: tuple[str, str] = ("", "")  # an operator and a kernel that it is meant for
    example_around: str | None = None  # the same of an operator around it, where one is asked for
    source: str  # where that is written

    def fits(self, operator: str, kernel: str, around: Iterable[str] = ()) -> bool:
        """Whether an operator, or the kernel that takes most of its time, is meant."""
        names = [(self.operators, operator), (self.kernels, kernel)]
        found = all(_any(patterns, name) for patterns, name in names if patterns)
        return found and (not self.inside or any(map(self.makes_it, around)))

    def makes_it(self, around: str) -> bool:
        """Whether an operator around it makes it do the same in each call."""
        return _any(self.inside, around)


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """What no name tells: the rule that looks for it, or why a recording does not tell."""

    what: str  # how it looks to whoever wrote the program
    rule: str | None = None
    why_not: str | None = None
    source: str


class Preparing(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of a library that compute nothing yet, and whose result it keeps for the next time."""

    file: str  # of the library, as frames have it
    functions: tuple[str, ...] = ()  # there, that do nothing else
    calls: tuple[str, ...] = ()  # there, as looks spell them: ``PlanNd()``
    what: str  # that is prepared: "plans of cuFFT"
    longest_ms: float  # one of them takes at most
    keeps: str  # how many of them the library keeps, a clause
    instead: str  # an imperative
    hint: str  # code that shows it
    source: str


class _File(msgspec.Struct, frozen=True):
    operator: tuple[Known, ...]
    preparing: tuple[Preparing, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()


_compiled = cache(regex)  # a file may have more of them than the library keeps


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return any(_compiled(pattern).search(name) for pattern in patterns)


def table() -> tuple[Known, ...]:
    """All entries, the user's own first. Raises UnreadableFile where these are none."""
    return (*_own(own_file()), *shipped())


def shipped() -> tuple[Known, ...]:
    """Those that come with Pinchpoint, in the order of the file."""
    return _file().operator


def elsewhere() -> tuple[Elsewhere, ...]:
    """What other slow work is known, and who finds it."""
    return _file().elsewhere


def preparing() -> tuple[Preparing, ...]:
    """Calls that only prepare."""
    return _file().preparing


def own_file() -> Path:
    """Where a user's own entries stand, if there are any."""
    if (chosen := os.environ.get("PINCHPOINT_OPERATORS")) is not None:
        return Path(chosen)
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local/share")
    return Path(data) / "pinchpoint" / "operators.json"


_MOST_ENTRIES = 1000  # ten times as many as come with Pinchpoint; each is asked of each operator
_SHOWN = 80  # characters of an expression: the width of a page
_PIECE = regex(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?P?[<=!]*|\(|\)|[*+]|\{\d*,\d*\}|\||.", re.DOTALL
)


def _may_not_end(pattern: str) -> bool:
    """Whether a group that is repeated repeats or chooses in itself, as ``(a+|b)+`` does.

    Such a one may try ever more ways to divide a name that does not fit: twice as many a letter.
    """
    groups, closed = [False], False  # of each group that is open whether it repeats or chooses
    for piece in _PIECE.findall(pattern):
        repeats = piece[0] in "*+" or (piece[0] == "{" and piece[-1] == "}")
        if repeats and closed:
            return True
        closed = piece == ")" and len(groups) > 1 and groups.pop()
        if piece[0] == "(":
            groups.append(False)
        elif repeats or closed or piece == "|":
            groups[-1] = True
    return False


@cache
def _own(path: Path) -> tuple[Known, ...]:
    hint = "reference/operators in the documentation has an entry; PINCHPOINT_OPERATORS= reads none"
    if not path.is_file():
        if os.environ.get("PINCHPOINT_OPERATORS"):
            raise UnreadableFile(f"{path}: no such file (PINCHPOINT_OPERATORS)", hint=hint)
        return ()
    try:
        entries = decoded(read_bounded(path), _File).operator
        patterns = [p for e in entries for p in (*e.operators, *e.kernels, *e.inside)]
        for pattern in patterns:
            re.compile(pattern)
    except (msgspec.DecodeError, re.error, OSError, OverflowError, RecursionError) as error:
        raise UnreadableFile(f"{path}: no table of operators ({error})", hint=hint) from None
    if len(entries) > _MOST_ENTRIES:
        raise UnreadableFile(f"{path}: more than {_MOST_ENTRIES} operators", hint=hint)
    if endless := next(filter(_may_not_end, patterns), None):
        raise UnreadableFile(
            f"{path}: {endless[:_SHOWN]!r} repeats what repeats or chooses in itself,"
            " and may not end within any time",
            hint="a regular expression is found anywhere in a name: write it without repeats",
        )
    for at, entry in enumerate(entries):
        if not entry.operators and not entry.kernels:
            raise UnreadableFile(f"{path}: entry {at} names no operators or kernels", hint=hint)
    return entries


@cache
def _file() -> _File:
    return msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=_File)


def known(
    operator: str,
    kernel: str,
    *,
    around: Iterable[str] = (),
    over_one_dimension: bool = False,
    across_layouts: bool = False,
) -> Known | None:
    """The first entry that fits; None where nothing is known."""
    fitting = (
        entry
        for entry in table()
        if entry.fits(operator, kernel, around)
        and (across_layouts or not entry.across_layouts)
        and not entry.only_on_cpu
    )
    return next((e for e in fitting if e.over_one_dimension or not over_one_dimension), None)


def known_on_cpu(operator: str) -> Known | None:
    """The first entry that fits and holds on a CPU, as well or only there."""
    mine = (entry for entry in table() if entry.on_cpu or entry.only_on_cpu)
    return next((entry for entry in mine if entry.fits(operator, "")), None)
