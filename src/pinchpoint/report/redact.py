"""What is left out of an answer that is passed on: folders, arguments, settings of the machine.

Diagnose first and redact then: rules tell the user's files from those of a library by their
folders. Names of files, functions, modules, kernels and annotations stay, as an answer is about
them; docs/reference/privacy.md lists what a recording may hold.
"""

import re
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
import numpy as np

from pinchpoint.regex import regex
from pinchpoint.trace import MemorySnapshot, RunFacts, RunSamples, Table, Trace, table
from pinchpoint.trace.run_samples import SampledThread

Document = TypeVar("Document", bound=msgspec.Struct)

# ``…/train.py(12): step`` and ``…/train.py:12``, whose folders may hold spaces.
_FRAME = regex(r"^[^\n]*[/\\](?=[^/\\\n]+?(?:\(\d+\): |:\d+$))")
# The same in brackets behind a name: ``step (/home/me/my work/train.py:12)``.
_IN_BRACKETS = regex(r"(?<=\()[^()\n]*[/\\](?=[^/\\()\n]+?:\d+\))")
_WHOLE = regex(r"^(?:/|~|[A-Za-z]:[/\\])[^\n]*[/\\](?=[^/\\\n]+$)")  # nothing but a path
_ROOTED = regex(r"(?<![\w.<])(?:\w+:/|[A-Za-z]:|~\w*|\.{1,2})?[/\\](?:[^\s/\\'\"<>:,()|]+[/\\])*")
_RELATIVE = regex(r"(?:[\w.@+~-]+[/\\])+(?=[\w.@+-]+\.[A-Za-z]\w{0,9}\b)")
_ARGUMENTS = regex(r"\s--?[A-Za-z].*$", re.DOTALL)  # of a process that is called by its command
_CALLED_BY_COMMAND = regex(r"^\S*(?:python|torchrun|accelerate|deepspeed|\.py\b|\.sh\b)")
# The program in a command that repeats the run, with all of its words up to the next command.
_PROGRAM = regex(r"(pinchpoint (?:run(?: --?[a-z-]+ (?!-)\S+)*|(?:ncu|try) \S+)) .*?(?= && |$)")
_COMPARED = regex(r"(?<=pinchpoint memory ).*?(?= --compare)")
_ARGUMENT_COLUMNS = ("values", "collective_args")
_REPLACED = "(left out)"


def short(text: str) -> str:
    """The text with folders gone from every path in it.

    >>> short("/home/me/my work/train.py(12): step"), short("see /data/x/run.json, twice")
    ('train.py(12): step', 'see run.json, twice')
    """
    if "/" not in text and "\\" not in text:
        return text
    for whole in (_FRAME, _IN_BRACKETS, _WHOLE):
        text = whole.sub("", text)
    return _RELATIVE.sub("", _ROOTED.sub(_kept, text))


def _kept(found: re.Match[str]) -> str:
    """A stroke alone is a sign of division, or stands between two words."""
    return found[0] if found[0] in ("/", "\\") else ""


def command_short(text: str) -> str:
    """The name of a process without folders and arguments."""
    return short(_ARGUMENTS.sub("", text) if _CALLED_BY_COMMAND.match(text) else text)


def redacted(document: Document, *private: str) -> Document:
    """A document of any kind without folders; ``private`` are texts to leave out wherever."""
    plain = msgspec.to_builtins(document)
    return msgspec.convert(_walked(plain, (*_folders(plain), *private)), type(document))


def _folders(plain: Any) -> list[str]:
    """Folders that fields of a document name: sentences repeat them, where spaces hide their end.

    Longest first.
    """
    found: set[str] = set()
    left = [("", plain)]
    while left:
        field, value = left.pop()
        if isinstance(value, dict):
            left += [(str(key), item) for key, item in value.items()]
        elif isinstance(value, list | tuple):
            left += [(field, item) for item in value]
        elif isinstance(value, str) and field == "file":
            found.add(value[: max(value.rfind("/"), value.rfind("\\")) + 1])
        elif isinstance(value, str) and (
            frame := _FRAME.match(value) or _IN_BRACKETS.search(value)
        ):
            found.add(frame[0])
    return sorted((f for f in found if len(f) > 1), key=len, reverse=True)


def _walked(value: Any, private: tuple[str, ...], field: str = "") -> Any:
    if isinstance(value, str):
        for text in private:
            value = value.replace(text, "")
        value = _COMPARED.sub("BEFORE", _PROGRAM.sub(r"\1 PROGRAM", value))
        return command_short(value) if field == "process" else short(value)
    if isinstance(value, dict):
        return {
            short(k) if isinstance(k, str) else k: _walked(v, private, str(k))
            for k, v in value.items()
        }
    if isinstance(value, list | tuple):
        if field == "command":
            return []
        return [_walked(item, private, field) for item in value]
    return value


# ------------------------------------------------------------------------------------------------
# A trace that exports and timelines are drawn from. Positions of names stay.


def redacted_trace(trace: Trace) -> Trace:
    """The trace without folders, arguments of operators and programs, and settings."""
    tables = {
        name: _without_arguments(held)
        for name in trace.__dataclass_fields__
        if isinstance(held := getattr(trace, name), Table)
    }
    columns: dict[str, Any] = tables
    return replace(
        trace,
        source=replace(trace.source, path=short(trace.source.path)),
        names=_names(trace, tables),
        threads=tuple(
            replace(t, process=command_short(t.process), label=t.label and command_short(t.label))
            for t in trace.threads
        ),
        run=None if trace.run is None else _run(trace.run),
        snapshot=None if trace.snapshot is None else _snapshot(trace.snapshot),
        **columns,
    )


def _names(trace: Trace, tables: dict[str, Table]) -> tuple[str, ...]:
    """Arguments leave the pool of names as well: all of it goes into some exports."""
    arguments: set[int] = set()
    for name in tables:
        before: Table = getattr(trace, name)
        for column in _ARGUMENT_COLUMNS:
            if column in before.columns:
                arguments.update(before[column][before.known(column)].tolist())
    return tuple(
        _REPLACED if at in arguments else command_short(text) for at, text in enumerate(trace.names)
    )


def _without_arguments(held: Table) -> Table:
    gone = [c for c in _ARGUMENT_COLUMNS if c in held.columns]
    if not gone or not len(held):
        return held
    nothing = np.ones(len(held), np.bool_)
    zeros = {c: np.zeros_like(held[c]) for c in gone}
    return table(
        held.name, {**held.columns, **zeros}, {**held.missing, **dict.fromkeys(gone, nothing)}
    )


def _run(facts: RunFacts) -> RunFacts:
    return replace(
        facts,
        command=(),
        variables=MappingProxyType({}),
        documents=MappingProxyType({}),
        named=None if facts.named is None else redacted_trace(facts.named),
        memory=None if facts.memory is None else redacted_trace(facts.memory),
        samples=None if facts.samples is None else _samples(facts.samples),
    )


def _samples(samples: RunSamples) -> RunSamples:
    workers = tuple(
        replace(one, stacks=tuple((tuple(map(short, stack)), n) for stack, n in one.stacks))
        for one in samples.workers
    )
    before, garbage = samples.before, samples.garbage
    return replace(
        samples,
        frames=tuple(map(short, samples.frames)),
        workers=workers,
        threads=tuple(map(_sampled_thread, samples.threads)),
        before=None if before is None else _sampled_thread(before),
        garbage=garbage and replace(garbage, called_at=tuple(map(short, garbage.called_at))),
        children=tuple(replace(c, thread=_sampled_thread(c.thread)) for c in samples.children),
        caches=tuple(replace(c, file=short(c.file)) for c in samples.caches),
    )


def _sampled_thread(thread: SampledThread) -> SampledThread:
    spent = (replace(one, frames=tuple(map(short, one.frames))) for one in thread.spent)
    return replace(thread, spent=tuple(spent))


def _snapshot(snapshot: MemorySnapshot) -> MemorySnapshot:
    frames = tuple(f._replace(file=short(f.file)) for f in snapshot.stacks.frames)
    marks = tuple(replace(mark, name=short(mark.name)) for mark in snapshot.marks)
    return replace(snapshot, stacks=replace(snapshot.stacks, frames=frames), marks=marks)
