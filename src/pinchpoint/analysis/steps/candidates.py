"""Series of boundaries in time that may be those of steps.

Starts and spans of a repeated annotation, of a Python function or module, graph launches, and
device operations that come once a step.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.ancestry import parents
from pinchpoint.analysis.host.launches import issued, main_thread, own_work
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import ApiKind, HostKind, Table, Trace
from pinchpoint.trace.arrays import Ints, Mask

# ------------------------------------------------------------------------------------------------
# What was issued over and over: the work whose repetition shows steps.


@dataclass(frozen=True, eq=False)
class LaunchedWork:
    """Times and kinds of launched work, in order; device operations or operators where no
    launches were recorded."""

    at_ns: Ints
    key: Ints  # 0..kinds-1
    kinds: int
    until_ns: Ints  # when each was issued, or done where there is no device
    unit: str  # what is counted, for people
    on_device: bool
    of_ranges: bool = False  # ranges that people annotate, where nothing else was recorded


def repeated_work(trace: Trace) -> LaunchedWork:
    """The launches; else the device operations; else the outer operators of the main thread, of
    all threads where a graph was executed by a pool of them; or its outer annotations."""
    ops = trace.device_ops
    if ops is None or not len(ops):
        return _host_work(trace)
    by = issued(trace)
    if not by.linked.any():
        # One of several devices tells: they do the same, or one after the other its part.
        devices, counts = np.unique(ops["device"], return_counts=True)
        mine = ops.take(ops["device"] == devices[counts.argmax()])
        at, until = mine["start_ns"], mine.end_ns
        return _numbered(at, mine["name"], until, "device operations", on_device=True)
    calls = trace.api_calls
    assert calls is not None
    graph = by.linked & (calls["kind"][by.call] == ApiKind.GRAPH_LAUNCH)
    graph &= own_work(trace)
    alone = by.linked & ~graph & own_work(trace)
    size = np.bincount(by.call[graph], minlength=len(calls))
    launched = np.flatnonzero(size)
    at = np.concatenate((by.start_ns[alone], calls["start_ns"][launched]))
    # A graph is known by its size: files do not name graphs.
    key = np.concatenate((ops["name"][alone], len(trace.names) + size[launched]))
    order = np.argsort(at, kind="stable")
    until = np.concatenate((by.end_ns[alone], calls.end_ns[launched]))
    return _numbered(at[order], key[order], until[order], "launches")


# Of a graph's runs (RunMetadata), from the feed to the last fetch; a pool of threads executes them.
OF_WHOLE_RUNS = ("TensorFlow 1 timeline",)


def _host_work(trace: Trace) -> LaunchedWork:
    host = trace.host_ops
    none = np.zeros(0, np.int64)
    if host is None or not len(host):
        return LaunchedWork(none, none, 0, none, "host operators", False)
    mine = host["thread"] == main_thread(trace)
    operator = host["kind"] == HostKind.OPERATOR
    if (operator & mine).any():
        threads = mine | (trace.source.recorder in OF_WHOLE_RUNS)
        outer = operator & ~_inside(host, operator) & threads
        return _numbered(
            host["start_ns"][outer], host["name"][outer], host.end_ns[outer], "host operators"
        )
    # A recording of ranges alone, or operators of other threads.
    outer = _outer_ranges(host, (host["kind"] == HostKind.ANNOTATION) & mine)
    kind = _without_numbers(trace.names)[host["name"][outer]]
    work = _numbered(host["start_ns"][outer], kind, host.end_ns[outer], "annotated ranges")
    return replace(work, of_ranges=True)


def _without_numbers(names: tuple[str, ...]) -> Ints:
    """A number for each name that those share which differ in their numbers alone."""
    spelt: dict[str, int] = {}
    return np.array([spelt.setdefault(re.sub(r"\d+", "#", n), len(spelt)) for n in names], np.int64)


def _inside(host: Table, of: Mask) -> Mask:
    """Rows that a row of these kinds holds directly."""
    inside = np.zeros(len(host), np.bool_)
    known = host.known("parent")
    inside[known] = of[host["parent"][known]]
    return inside


FEWEST_LAUNCHES = 4  # fewer say nothing about repetition


def _outer_ranges(host: Table, ranges: Mask) -> Mask:
    """The ranges that no other holds; what these hold, where they are too few to repeat: one range
    around the whole program says nothing of its rounds."""
    level = ranges & ~_inside(host, ranges)
    while np.count_nonzero(level) < FEWEST_LAUNCHES:
        deeper = ranges & _inside(host, level)
        if not deeper.any():
            break
        level = deeper
    return level


def _numbered(
    at_ns: Ints, key: Ints, until_ns: Ints, unit: str, *, on_device: bool = False
) -> LaunchedWork:
    distinct, numbered = np.unique(key, return_inverse=True)
    return LaunchedWork(at_ns, numbered.astype(np.int64), len(distinct), until_ns, unit, on_device)


# ------------------------------------------------------------------------------------------------
# Series of boundaries in time that may be those of steps.


Times = NDArray[np.int64]

MOST_PIECES = 20_000  # more boundaries than any recording has steps
CANDIDATES_A_KIND = 24  # judging is linear in the launches, so candidates are limited
OPTIMIZER = "Optimizer.step"  # how torch.optim annotates what ends a training step
LOADER = "enumerate(Data"  # how torch.utils.data annotates that a batch is fetched
OPTIMIZERS_A_ROUND = (1, 2, 3)  # that step in turn: one, two in adversarial training, three at most
LEAST_COVERAGE = 0.5  # share of the launches, or of their time, that the pieces must hold


@dataclass(frozen=True, eq=False)
class Candidate:
    """Boundaries and what they are made of."""

    kind: str
    name: str
    start_ns: Times
    end_ns: Times | None  # None: up to the next start
    counted: bool = False  # its author calls it a step, and counts them


def candidates(trace: Trace, work: LaunchedWork) -> Iterator[Candidate]:
    """All candidates that the trace offers."""
    host = trace.host_ops
    if host is not None and len(host) and not work.on_device:
        mine = host["thread"] == main_thread(trace)
        main = host.take(mine)
        usable = (main["kind"] == HostKind.ANNOTATION) & ~_of_xla(trace, host)[mine]
        if work.of_ranges:  # what is inside of a part of a round begins no round
            usable &= np.isin(main["start_ns"], work.at_ns)
        annotated = main.take(usable)
        yield from _optimizer_steps(trace.names, main, work)
        yield from _repeated(trace.names, annotated, "annotation", work)
        python = np.isin(main["kind"], (HostKind.PYTHON, HostKind.MODULE))
        if python.any():
            called = main.take(python & ~_of_framework(trace.names)[main["name"]])
            yield from _repeated(trace.names, _lengthy(called, work), "function", work)
    marks = trace.device_annotations
    if work.on_device and marks is not None and len(marks):
        yield from _repeated(trace.names, marks, "annotation", work)
    yield from _graphs(trace, work)
    yield from _once_a_step(trace, work)


def _optimizer_steps(
    names: tuple[str, ...], main: Table, work: LaunchedWork
) -> Iterator[Candidate]:
    """Training steps, each up to the end of the optimizer's, from the first recorded work on.

    Of programs that step an optimizer several times a round (two networks against each other, one
    optimizer a part), every second or third end may be that of the round.
    """
    shown = np.isin(main["kind"], (HostKind.OPERATOR, HostKind.ANNOTATION))
    for name in np.unique(main["name"][shown]).tolist():
        if not names[name].startswith(OPTIMIZER):
            continue
        ends = np.sort(main.end_ns[shown & (main["name"] == name)])
        first = min(int(main["start_ns"][shown].min()), int(work.at_ns[0]))
        for every in OPTIMIZERS_A_ROUND:
            end = ends[(len(ends) - 1) % every :: every]
            if len(end) >= 2:
                yield Candidate("optimizer", names[name], np.append(first, end[:-1]), end)


def _repeated(
    names: tuple[str, ...], rows: Table, kind: str, work: LaunchedWork
) -> Iterator[Candidate]:
    """One candidate per name, the most time first; numbers in annotations do not tell apart.

    Those in names of modules do: ``Block_0`` to ``Block_11`` are twelve layers. Where ranges are
    all there is and differ in their numbers alone, these must count: lines of a program do not.
    """
    if not len(rows):
        return
    used = np.unique(rows["name"]).tolist()
    plain = kind != "annotation"
    text = {p: names[p] if plain else re.sub(r"\d+", "#", names[p]) for p in used}
    spelt = sorted(set(text.values()))
    group_of = np.zeros(len(names), np.int64)
    for position, words in text.items():
        group_of[position] = spelt.index(words)
    group = group_of[rows["name"]]
    count = np.bincount(group, minlength=len(spelt))
    time = np.bincount(group, weights=rows["duration_ns"], minlength=len(spelt))
    usable = np.flatnonzero((count >= 2) & (count <= MOST_PIECES))
    for one in usable[np.argsort(-time[usable], kind="stable")][:CANDIDATES_A_KIND]:
        mine = rows.take(group == one)
        start, end = mine["start_ns"], mine.end_ns
        if np.any(start[1:] < end[:-1]):  # nested in itself or concurrent: no series of steps
            continue
        counts = plain or _count(names, mine)
        if work.of_ranges and work.kinds == 1 and not counts:
            continue
        counted = not plain and counts and _STEP.search(spelt[one]) is not None
        yield from _shaped(kind, spelt[one], start, end, counted=counted)


_STEP = regex(r"(?<![a-z])(?:step|iteration)[^a-z]*#[^a-z#]*$", re.IGNORECASE)
LEAST_COUNTING_RATIO = 0.9  # of the ranges; a count begins anew with an epoch


def _count(names: tuple[str, ...], rows: Table) -> bool:
    """Whether the last numbers in these names rise from one to the next; those of one name do."""
    if len(np.unique(rows["name"])) == 1:
        return True
    found = [re.findall(r"\d+", names[name]) for name in rows["name"].tolist()]
    number = np.array([int(each[-1][-18:]) if each else -1 for each in found])
    return bool((np.diff(number) > 0).mean() >= LEAST_COUNTING_RATIO)


def _shaped(
    kind: str, name: str, start: Times, end: Times, *, counted: bool
) -> Iterator[Candidate]:
    """The spans as the steps, and as marks of one moment in each.

    What covers little of the time between its beginnings is named after that moment, and says no
    more of a step than what else comes as often.
    """
    if name.startswith(OPTIMIZER):  # a candidate of its own
        return
    gaps, covered = int((start[1:] - end[:-1]).sum()), int((end - start)[:-1].sum())
    if covered > gaps:
        yield Candidate(kind, name, start, end, counted)
    moment = kind == "annotation" and covered <= gaps and not name.startswith(LOADER)
    if kind == "annotation" or covered <= gaps:
        yield Candidate("mark" if moment and not counted else kind, name, start, None, counted)


_CALL_OF_JAX = "PjitFunction("  # around each call of a compiled function


def _of_xla(trace: Trace, host: Table) -> Mask:
    """Ranges that JAX and XLA mark for themselves, in a program that calls compiled functions: all
    but those calls, and what is around them. What a person marks as a step calls at least one."""
    call = np.array([name.startswith(_CALL_OF_JAX) for name in trace.names], np.bool_)
    if not call.any():
        return np.zeros(len(host), np.bool_)
    chain, kept = np.append(parents(host), len(host)), np.zeros(len(host) + 1, np.bool_)
    at = np.flatnonzero(call[host["name"]])
    while len(at):
        kept[at] = True
        at = np.unique(chain[at])
        at = at[~kept[at] & (at < len(host))]
    return ~kept[:-1]


_FRAMEWORK = ("<built-in", "torch/", "jax/_src/")


def _of_framework(names: tuple[str, ...]) -> NDArray[np.bool_]:
    """Functions that are never a step: built-in ones and those of the framework itself."""
    return np.array([name.startswith(_FRAMEWORK) for name in names], np.bool_)


def _lengthy(rows: Table, work: LaunchedWork) -> Table:
    """Rows of functions that together take at least half of the time in which work is launched."""
    if not len(rows):
        return rows
    time = np.bincount(rows["name"], weights=rows["duration_ns"])
    needed = LEAST_COVERAGE * float(work.at_ns[-1] - work.at_ns[0])
    return rows.take(time[rows["name"]] >= needed)


def _graphs(trace: Trace, work: LaunchedWork) -> Iterator[Candidate]:
    calls = trace.api_calls
    if calls is None or work.on_device:
        return
    at = calls["start_ns"][calls["kind"] == ApiKind.GRAPH_LAUNCH]
    if 2 <= len(at) <= MOST_PIECES:
        yield Candidate("graph", "graph launches", at, None)


def _once_a_step(trace: Trace, work: LaunchedWork) -> Iterator[Candidate]:
    """For every count that several kinds of work share, the boundaries at the first such kind."""
    count = np.bincount(work.key, minlength=work.kinds)
    _, first = np.unique(work.key, return_index=True)
    earliest: dict[int, int] = {}
    for key in np.argsort(first, kind="stable").tolist():
        earliest.setdefault(int(count[key]), key)
    sharing = np.bincount(count)
    usable = [c for c in earliest if 2 <= c <= MOST_PIECES]
    usable.sort(key=lambda c: -int(sharing[c]))
    for c in usable[:CANDIDATES_A_KIND]:
        first_of_kind = work.at_ns[work.key == earliest[c]]
        start = _from_the_beginning(work, c)
        yield Candidate(
            "sequence", f"{work.unit} repeat", first_of_kind if start is None else start, None
        )


ALIKE_IN_ORDER = 0.98  # of the work: a step in fifty calls one function once more, or another


def _from_the_beginning(work: LaunchedWork, rounds: int) -> Times | None:
    """Where each round begins, if the recording is nothing but so many of them, whole and in the
    same order: with its first work, and not with what happens to come once in each."""
    each, rest = divmod(len(work.key), rounds)
    if rest or each < 2:
        return None
    alike = (work.key[each:] == work.key[:-each]).mean() >= ALIKE_IN_ORDER
    return work.at_ns[::each] if alike else None
