"""Rounds of a serving engine: prefill and decode apart, how many requests and tokens, how fast."""

import numpy as np

from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.analysis.host.frames import frame_of, kernels_inside
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Mask, Rows, distinct
from pinchpoint.trace.engine_steps import EngineStep, engine_step


@dataclass(frozen=True)
class Round:
    """One round, from the completion of the one before to its own."""

    at_ns: int
    duration_ns: int
    kind: str  # prefill, decode, mixed, idle, or the engine's word
    requests: int
    tokens: int | None  # computed in it; None where its name does not say


@dataclass(frozen=True)
class RoundsOfAKind:
    """All rounds of one kind; medians, of the complete ones where there are any."""

    kind: str
    count: int
    requests: float
    tokens: float | None  # a round
    typical_ns: int
    tokens_per_s: float | None
    tokens_a_request: float | None  # of decoding: above one, several are proposed at once


@dataclass(frozen=True)
class Serving:
    """What an engine did in the recording."""

    engine: str  # vLLM, SGLang, TensorRT-LLM
    kinds: tuple[RoundsOfAKind, ...]  # most time first
    between_ns: int | None  # host time between two rounds: scheduling, median; None for one round
    rounds: tuple[Round, ...]  # in order


@once_per_trace
def serving(trace: Trace) -> Serving | None:
    """The rounds that the recording names; None where it names none."""
    rows, told = named_rounds(trace)
    if not told:
        return None
    host, found = trace.host_ops, steps(trace)
    assert host is not None
    start, end = host["start_ns"][rows], host.end_ns[rows]
    step = np.clip(
        np.searchsorted(found.host_start_ns, start, "right") - 1, 0, max(len(found) - 1, 0)
    )
    own = len(found) == len(rows) and found.how != "none"
    lasts = (found.end_ns - found.start_ns)[step] if own else end - start
    complete = (
        found.complete[step] if own and found.complete.any() else np.ones(len(rows), np.bool_)
    )
    rounds = tuple(
        Round(int(at), int(ns), one.kind, _requests(one), _tokens(one))
        for at, ns, one in zip(start.tolist(), lasts.tolist(), told, strict=True)
    )
    between = start[1:] - end[:-1]
    kinds = [
        _of_kind(kind, rounds, told, complete) for kind in dict.fromkeys(r.kind for r in rounds)
    ]
    return Serving(
        engine=_engine(trace),
        kinds=tuple(sorted(kinds, key=lambda k: -k.typical_ns * k.count)),
        between_ns=int(np.median(between)) if len(between) and (between >= 0).all() else None,
        rounds=rounds,
    )


# What an engine's package is called, in the path of a file of its own.
_PACKAGES = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt_llm": "TensorRT-LLM"}
_MOST_RATIO = 0.5  # of the kernels, launched inside an engine's functions: then it runs the model


@once_per_trace
def engine_around(trace: Trace) -> str | None:
    """The engine that runs the model: by its rounds, else whose functions launch most kernels."""
    host = trace.host_ops
    if host is None or not len(host):
        return None
    if named_rounds(trace)[1]:
        return _engine(trace)
    of_name = np.array([_package(name) for name in trace.names], np.int8)
    if not of_name.any():
        return None
    inside = kernels_inside(trace)
    outer = parents(host)
    top, every = outer == len(host), of_name[host["name"]]
    for i, engine in enumerate(_PACKAGES.values(), 1):
        wanted = every == i
        outermost = wanted & ~within(outer, wanted)[outer]
        if inside[outermost].sum() > _MOST_RATIO * inside[top].sum():
            return engine
    return None


def _package(name: str) -> int:
    """The number of the engine whose package a frame's file lies in, from 1; 0 for none."""
    frame = frame_of(name)
    if frame is None:
        return 0
    folders = frame.file.replace("\\", "/").split("/")[:-1]
    return next((i for i, package in enumerate(_PACKAGES, 1) if package in folders), 0)


def named_rounds(trace: Trace) -> tuple[Rows, list[EngineStep]]:
    """Annotations of rounds on one thread, the outer ones; engines nest one in another's."""
    host = trace.host_ops
    if host is None or not len(host):
        return np.zeros(0, np.int64), []
    ranges = np.flatnonzero(host["kind"] == HostKind.ANNOTATION)
    used = distinct(host["name"][ranges]).tolist()
    known = {n: one for n in used if (one := engine_step(trace.names[n]))}
    rows = ranges[np.isin(host["name"][ranges], list(known))]
    if not len(rows):
        return rows, []
    threads = host["thread"][rows]
    rows = rows[threads == np.bincount(threads).argmax()]
    reached = np.maximum.accumulate(host.end_ns[rows])
    outer = np.append(True, host["start_ns"][rows][1:] >= reached[:-1])
    return rows[outer], [known[n] for n in host["name"][rows[outer]].tolist()]


def _engine(trace: Trace) -> str:
    """Some builds of SGLang write rounds as vLLM does, around their own."""
    said = {one.engine for name in trace.names if (one := engine_step(name))}
    return min(said)  # SGLang, TensorRT-LLM, vLLM: the word that only its own engine writes


def _requests(one: EngineStep) -> int:
    return one.prefill_requests + one.decode_requests


def _tokens(one: EngineStep) -> int | None:
    if one.prefill_tokens is None or one.decode_tokens is None:
        return None
    return one.prefill_tokens + one.decode_tokens


def _of_kind(
    kind: str, rounds: tuple[Round, ...], told: list[EngineStep], complete: Mask
) -> RoundsOfAKind:
    every = [i for i, one in enumerate(rounds) if one.kind == kind]
    mine = [i for i in every if complete[i]] or every
    tokens = [rounds[i].tokens for i in mine]
    known = [t for t in tokens if t is not None]
    took = sum(rounds[i].duration_ns for i in mine)
    whole = len(known) == len(mine) and took > 0 and sum(known) > 0
    asked = sum(told[i].decode_requests for i in mine)
    return RoundsOfAKind(
        kind=kind,
        count=len(every),
        requests=float(np.median([rounds[i].requests for i in mine])),
        tokens=float(np.median(known)) if whole else None,
        typical_ns=int(np.median([rounds[i].duration_ns for i in mine])),
        tokens_per_s=sum(known) / took * 1e9 if whole else None,
        tokens_a_request=sum(known) / asked if whole and kind == "decode" and asked else None,
    )
