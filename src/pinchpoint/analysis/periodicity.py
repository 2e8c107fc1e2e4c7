"""Finds steps in a recording without markers, by what repeats in it.

Every candidate is a series of boundaries in time: starts of a repeated annotation, of a Python
function or module, graph launches, or a device operation that comes once a step. All are judged
by one question: cut at these boundaries, does every piece launch the same work? Layers of one
step repeat as well, but pieces cut at layers differ where a step begins and ends: names that
occur in few of the pieces count against a candidate.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.launches import issued, main_thread
from pinchpoint.trace import ApiKind, HostKind, Table, Trace

Times = NDArray[np.int64]

MOST_PIECES = 20_000  # more boundaries than any recording has steps
CANDIDATES_A_KIND = 24  # the judging is linear in the launches, so candidates are limited
FEWEST_LAUNCHES = 4  # fewer say nothing about repetition
FEWEST_A_PIECE = 10  # without other evidence, fewer launches repeating are a loop inside a step
FEWEST_PIECES = 3  # without other evidence, two alike halves may be chance
LEAST_COVERAGE = 0.5  # share of the launches that the pieces must hold
SAME_COUNT_RATIO = 0.1  # a name's count may differ by this much from its median count
LEAST_SCORE = 0.65  # below this, one window and no steps; chosen on recordings with hidden markers
NEARLY_AS_GOOD = 0.03  # scores this close are equal; the kind of evidence then decides

# How much each kind of evidence is trusted; a person's annotation outranks a pattern of names.
TRUST = {"annotation": 1.0, "function": 0.97, "graph": 0.95, "sequence": 0.9}


@dataclass(frozen=True, eq=False)
class Spans:
    """Steps as spans of host time (device time where there is no host), sorted and disjoint."""

    start_ns: Times
    end_ns: Times
    number: Times
    basis: str
    confidence: float | None
    last_is_open: bool = False  # the last one may have been cut off by the end of the recording
    on_device: bool = False


@dataclass(frozen=True, eq=False)
class Inference:
    """The steps found, or None and the reason."""

    spans: Spans | None
    reason: str


@dataclass(frozen=True, eq=False)
class _Work:
    """What repeats: times and kinds of launched work, in order."""

    at_ns: Times
    key: NDArray[np.int64]  # 0..kinds-1
    kinds: int
    unit: str  # what is counted, for people
    on_device: bool


@dataclass(frozen=True, eq=False)
class _Candidate:
    kind: str
    name: str
    start_ns: Times
    end_ns: Times | None  # None: up to the next start


def infer_steps(trace: Trace) -> Inference:
    """Steps by repetition, with how sure; or why there are none."""
    work = _work(trace)
    if len(work.at_ns) < FEWEST_LAUNCHES:
        return Inference(None, f"no markers, and only {len(work.at_ns)} {work.unit}: no repetition")
    best: tuple[float, _Candidate] | None = None
    for candidate in _candidates(trace, work):
        score = _score(candidate, work)
        if score >= LEAST_SCORE and (best is None or _better(score, candidate, *best)):
            best = score, candidate
    if best is None:
        return Inference(None, f"no markers, and nothing repeats regularly in {work.unit}")
    return Inference(_spans(best[1], work, round(best[0], 2)), "")


def _better(score: float, one: _Candidate, best_score: float, other: _Candidate) -> bool:
    if abs(score - best_score) > NEARLY_AS_GOOD:
        return score > best_score
    if TRUST[one.kind] != TRUST[other.kind]:
        return TRUST[one.kind] > TRUST[other.kind]
    return _held(one) > _held(other)  # the outer one


def _held(candidate: _Candidate) -> int:
    start, end = candidate.start_ns, candidate.end_ns
    if end is None:
        return int(start[-1] - start[0])
    return int((end - start).sum())


def _work(trace: Trace) -> _Work:
    ops = trace.device_ops
    if ops is None or not len(ops):
        return _host_work(trace)
    by = issued(trace)
    if not by.linked.any():
        order = np.argsort(ops["start_ns"], kind="stable")
        return _numbered(ops["start_ns"][order], ops["name"][order], "device operations", True)
    calls = trace.api_calls
    assert calls is not None
    graph = by.linked & (calls["kind"][by.call] == ApiKind.GRAPH_LAUNCH)
    alone = by.linked & ~graph
    size = np.bincount(by.call[graph], minlength=len(calls))
    launched = np.flatnonzero(size)
    at = np.concatenate((by.start_ns[alone], calls["start_ns"][launched]))
    # A graph is known by its size: files do not name graphs.
    key = np.concatenate((ops["name"][alone], len(trace.names) + size[launched]))
    order = np.argsort(at, kind="stable")
    return _numbered(at[order], key[order], "launches", False)


def _host_work(trace: Trace) -> _Work:
    host = trace.host_ops
    none = np.zeros(0, np.int64)
    if host is None or not len(host):
        return _Work(none, none, 0, "host operators", False)
    operator = host["kind"] == HostKind.OPERATOR
    inside = np.zeros(len(host), np.bool_)
    known = host.known("parent")
    inside[known] = operator[host["parent"][known]]
    outer = operator & ~inside & (host["thread"] == main_thread(trace))
    return _numbered(host["start_ns"][outer], host["name"][outer], "host operators", False)


def _numbered(at_ns: Times, key: NDArray[np.int64], unit: str, on_device: bool) -> _Work:
    distinct, numbered = np.unique(key, return_inverse=True)
    return _Work(at_ns, numbered.astype(np.int64), len(distinct), unit, on_device)


def _candidates(trace: Trace, work: _Work) -> Iterator[_Candidate]:
    host = trace.host_ops
    if host is not None and len(host) and not work.on_device:
        main = host.take(host["thread"] == main_thread(trace))
        annotated = main.take(main["kind"] == HostKind.ANNOTATION)
        yield from _repeated(trace.names, annotated, "annotation")
        python = np.isin(main["kind"], (HostKind.PYTHON, HostKind.MODULE))
        if python.any():
            called = main.take(python)
            yield from _repeated(trace.names, _lengthy(called, work), "function")
    marks = trace.device_annotations
    if work.on_device and marks is not None and len(marks):
        yield from _repeated(trace.names, marks, "annotation")
    yield from _graphs(trace, work)
    yield from _once_a_step(trace, work)


def _repeated(names: tuple[str, ...], rows: Table, kind: str) -> Iterator[_Candidate]:
    """One candidate per name, numbers in it left out; the most time first."""
    if not len(rows):
        return
    text = {p: re.sub(r"\d+", "#", names[p]) for p in np.unique(rows["name"]).tolist()}
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
        yield _shaped(kind, spelt[one], start, end)


def _shaped(kind: str, name: str, start: Times, end: Times) -> _Candidate:
    """Whether the spans are the steps, or only mark one moment in each."""
    if name.startswith("Optimizer.step"):  # the end of a training step
        return _Candidate(kind, name, end, None)
    gaps = int((start[1:] - end[:-1]).sum())
    covered = int((end - start)[:-1].sum())
    return _Candidate(kind, name, start, end if covered > gaps else None)


def _lengthy(rows: Table, work: _Work) -> Table:
    """Rows of functions that together take at least half of the time in which work is launched."""
    time = np.bincount(rows["name"], weights=rows["duration_ns"])
    needed = LEAST_COVERAGE * float(work.at_ns[-1] - work.at_ns[0])
    return rows.take(time[rows["name"]] >= needed)


def _graphs(trace: Trace, work: _Work) -> Iterator[_Candidate]:
    calls = trace.api_calls
    if calls is None or work.on_device:
        return
    at = calls["start_ns"][calls["kind"] == ApiKind.GRAPH_LAUNCH]
    if 2 <= len(at) <= MOST_PIECES:
        yield _Candidate("graph", "graph launches", at, None)


def _once_a_step(trace: Trace, work: _Work) -> Iterator[_Candidate]:
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
        yield _Candidate(
            "sequence", f"{work.unit} repeat", work.at_ns[work.key == earliest[c]], None
        )


def _score(candidate: _Candidate, work: _Work) -> float:
    """0 to 1: sameness of the pieces, times their coverage, times trust in the evidence."""
    start, end = candidate.start_ns, candidate.end_ns
    pieces = len(start) if end is not None else len(start) - 1
    if pieces < 1:
        return 0.0
    which = np.searchsorted(start, work.at_ns, "right") - 1
    inside = (which >= 0) & (which < pieces)
    if end is not None:
        inside &= work.at_ns < end[which]
    sameness = _sameness(which[inside], work.key[inside], pieces, work.kinds)
    repeats = len(start)
    coverage = float(inside.sum()) / len(work.at_ns)
    if end is None:  # the pieces before the first and after the last boundary are cut, not foreign
        coverage = min(1.0, coverage * repeats / pieces)
    if coverage < LEAST_COVERAGE or repeats < 2:
        return 0.0
    if candidate.kind == "sequence" and (
        repeats < FEWEST_PIECES or inside.sum() < FEWEST_A_PIECE * pieces
    ):
        return 0.0
    return sameness * coverage * TRUST[candidate.kind] * (1 - 1 / repeats**2)


def _sameness(piece: NDArray[np.int64], key: NDArray[np.int64], pieces: int, kinds: int) -> float:
    """Mean over kinds of the share of pieces that have as many of it as the median piece."""
    if not len(piece) or pieces * kinds > 50_000_000:
        return 0.0
    counts = np.bincount(piece * kinds + key, minlength=pieces * kinds).reshape(pieces, kinds)
    usual = np.median(counts, axis=0)
    same = np.abs(counts - usual) <= SAME_COUNT_RATIO * usual
    share = np.where(usual > 0, same.mean(axis=0), 0.0)
    return float(share.mean())


def _spans(candidate: _Candidate, work: _Work, confidence: float) -> Spans:
    start, end = candidate.start_ns, candidate.end_ns
    open_end = end is None
    if end is None:
        last = max(int(work.at_ns[-1]) + 1, int(start[-1]) + 1)
        end = np.append(start[1:], last)
    words = {
        "annotation": f"the annotation {candidate.name!r}",
        "function": f"the calls of {candidate.name!r}",
    }.get(candidate.kind, candidate.name)
    basis = f"no markers; {words}, {len(start)} times"
    number = np.arange(len(start), dtype=np.int64)
    return Spans(start, end, number, basis, confidence, open_end, work.on_device)
