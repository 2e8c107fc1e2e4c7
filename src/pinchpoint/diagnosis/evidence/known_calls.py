"""What calls of Python's libraries are as a rule, by their names: an advice for that case.

No evidence: what a call does with its input does not show. So an advice goes after a fix that holds
for any call, and says for what case it is. Where a recording, or looks at a run, have the time
inside of a library's own code, that is what runs: its advice comes first. Figures are those of one
thread of a server of 2023 (NumPy 2.4, torch 2.13, Python 3.11). The entries are
``known_calls.json``.
"""

from collections import Counter
from functools import cache
from pathlib import Path

import msgspec

from pinchpoint.analysis.host.frames import Owner, frame_of
from pinchpoint.analysis.mean.stacks import own_frame
from pinchpoint.diagnosis.evidence.whole_run import call_at
from pinchpoint.diagnosis.finding import Location
from pinchpoint.regex import regex
from pinchpoint.trace import Trace

_HOME = regex(r"^.*/(?:(?:site|dist)-packages|lib(?:64)?/python\d[\d.]*)/")  # of libraries
_BUILTIN = regex(r"<built-in (?:method|function) (\w+)")


class _Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    names: tuple[str, ...]  # of the function, without its module; empty: any
    within: tuple[str, ...]  # modules, or parts of one, before it; empty: any
    advice: str  # an imperative or a condition with one

    def is_called(self, module: str, name: str) -> bool:
        """Whether a call may be meant."""
        within = any(f".{part}." in f".{module}." for part in self.within)
        return (within or not self.within) and (name in self.names or not self.names)

    def has(self, module: str, name: str) -> bool:
        """Whether a function of a library is meant: its module begins with one of these."""
        within = any(f"{module}.".startswith(f"{part}.") for part in self.within)
        return (within or not self.within) and (name in self.names or not self.names)


class _File(msgspec.Struct, frozen=True):
    inside: tuple[_Known, ...]  # of code of libraries that was seen to run
    called: tuple[_Known, ...]  # of calls as the program spells them


@cache
def known_calls() -> _File:
    """All entries, in the order of the file: the first that is meant speaks."""
    return msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=_File)


def advice_for(call: str) -> str:
    """What a call may be and what to do then, as looks spell it (``np.random.choice()``,
    ``pandas.core.groupby.generic.aggregate``), ``; `` before it; empty where nothing is known."""
    module, _, name = call.removesuffix("()").rpartition(".")
    for known in known_calls().called:
        if known.is_called(module, name):
            return f"; {known.advice}"
    return ""


def advice_inside(row: str) -> str:
    """What to do where a library's own function runs (``json/decoder.py(343): raw_decode``); empty
    where nothing is known of it, and for the program's own functions."""
    frame = frame_of(row)
    if frame is None or frame.owner is Owner.USER:
        return ""
    module = _module(frame.file)
    for known in known_calls().inside:
        if known.has(module, frame.function):
            return known.advice
    return ""


def advice_at(trace: Trace, place: Location | None, name: str = "") -> str:
    """What may be done at a place, ``; `` before it: for the call that most looks there were at,
    else for a row of a recording that has most of it, else for what most looks at that line were
    inside of."""
    if place is None:
        return ""
    said = advice_for(call_at(trace, place)) or advice_for_row(name)
    return said or advice_for_row(_inside(trace, place))


def advice_for_what_runs(trace: Trace, place: Location | None, name: str = "") -> str:
    """What to do where a library's own code was seen: in a row that has most of the time there,
    else in most looks at the line; empty where nothing is known of it."""
    if place is None:
        return ""
    return advice_inside(name) or advice_inside(_inside(trace, place))


def _module(file: str) -> str:
    """``json.decoder`` of ``json/decoder.py``, ``importlib._bootstrap`` of ``<frozen …>``."""
    name = _HOME.sub("", file).removeprefix("<frozen ").removesuffix(">").removesuffix(".py")
    return name.replace("/", ".").removesuffix(".__init__")


def _inside(trace: Trace, place: Location) -> str:
    """The function of a library that a line of the program is in most of the time, as looks have
    it; empty where it is not one in three of them."""
    samples, spent = trace.run.samples if trace.run else None, Counter[str]()
    for one in (one for t in samples.threads for one in t.spent) if samples else ():
        at = own_frame(one.frames)
        if at is None or (at.file, at.line) != (place.file, place.line):
            continue
        called = ""
        for name in one.frames:
            frame = frame_of(name)
            if frame is not None and frame.owner is Owner.USER:
                break
            called = name
        spent[called] += one.us
    name, us = max(spent.items(), key=lambda item: item[1], default=("", 0))
    return name if us >= INSIDE_RATIO * sum(spent.values()) else ""


INSIDE_RATIO = 1 / 3  # a judgement: of less, another call may be as much of it


def advice_for_row(name: str) -> str:
    """The same for a row of a recording: a frame (``pandas/core/frame.py(1505): iterrows``) or a
    built-in function."""
    frame = frame_of(name)
    if frame is not None:
        return advice_for(f"{_module(frame.file)}.{frame.function}")
    found = _BUILTIN.match(name)
    return advice_for(found[1]) if found else ""


def advised(fix: str, runs: str, of_call: str) -> str:
    """What to do about code of a library that runs there, before what holds for any code; else
    what a call may be, after it."""
    if not runs:
        return fix + of_call
    return f"{runs[0].upper()}{runs[1:]}. Or {fix[0].lower()}{fix[1:]}"
