"""Kinds of steps, and the steps that are exceptions.

A loop often has several kinds of steps: micro-steps that accumulate gradients and those that end
with the optimizer, training and evaluation, prefill and decode. And it has exceptions: a step that
waits for a slow batch, saves or collects garbage. Kinds come often; exceptions are rare.
"""

from collections import Counter
from collections.abc import Container
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.input_arguments import Shape, input_shapes
from pinchpoint.analysis.host.launches import issued, main_thread
from pinchpoint.analysis.statistics import median
from pinchpoint.analysis.steps.in_steps import sum_per_window, window_of
from pinchpoint.analysis.steps.steps import (
    FEWEST_TO_SETTLE,
    MAD_TO_SIGMA,
    OUTLIER_DEVIATIONS,
    OUTLIER_FLOOR_RATIO,
    SETTLED_RATIO,
    Steps,
    steps,
)
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import distinct
from pinchpoint.trace.names import rows_named

Times = NDArray[np.int64]
Rows = NDArray[np.intp]

FEWEST_STEPS = 4  # of fewer there is no telling the usual one from the exception
# Between neighbours in order of duration: steps of one kind vary by less, in the regular recordings
# that this was tried on by up to 1.29.
OTHER_KIND_RATIO = 1.3
KIND_SHARE = (
    0.25  # of steps with the same passes: what comes more rarely than every fourth is an exception
)
SAME_WORK_RATIO = 1.1  # launches of steps with the same work, where shapes vary


@dataclass(frozen=True, eq=False)
class StepKind:
    """Steps alike; ``steps`` are positions of its usual ones in ``steps(trace)``."""

    label: str  # what sets it apart, in words; empty where it is the only kind
    steps: Rows
    median_ns: int
    total_ns: int
    launches: int  # of its median step; without a device operators
    far_ns: int  # what is further than this from the median is no usual step


@dataclass(frozen=True, eq=False)
class StepKinds:
    """All kinds, most time first, and the complete steps that belong to none.

    ``like`` has for each exception the position of the kind that it is held against. Without
    kinds (too few steps, or no two alike) there are no exceptions either.
    """

    kinds: tuple[StepKind, ...]
    exceptions: Rows
    like: Rows


@once_per_trace
def step_kinds(trace: Trace) -> StepKinds:
    """The kinds among the complete steps."""
    found = steps(trace)
    rows = np.flatnonzero(found.complete)
    lasting, work = found.end_ns - found.start_ns, launches_per_step(trace)
    if found.how == "none" or len(rows) < FEWEST_STEPS:
        return _alone(rows, lasting, work) if found.how != "none" and len(rows) else _NONE
    settled = rows[len(rows) // 2 :] if _settles(found, rows) else rows
    large = [
        group
        for alike in _by_passes(trace, settled, lasting)
        for group in _by_duration(alike, lasting)
        if len(group) >= max(2, KIND_SHARE * len(alike))
    ]
    large = [g for g in large if not _only_the_beginning(g, large, rows, lasting, work)]
    usual = [_usual(group, lasting) for group in large]
    if not usual:
        return _NONE
    usual.sort(key=lambda group: -int(lasting[group].sum()))
    taken = np.concatenate(usual)
    exceptions = rows[~np.isin(rows, taken)]
    labels = _labels(trace, usual, work)
    kinds = tuple(
        _kind(label, group, lasting, work) for label, group in zip(labels, usual, strict=True)
    )
    like = np.array([_nearest(kinds, int(work[i])) for i in exceptions], np.intp)
    return StepKinds(kinds, exceptions, like)


@once_per_trace
def each_kind_alone(trace: Trace) -> tuple[Trace, ...]:
    """For each kind the same recording, asked about its usual steps alone; empty with one kind.

    Without what the run knows besides: its steps were not told apart by kinds.
    """
    kinds = step_kinds(trace).kinds
    if len(kinds) < 2:
        return ()
    return tuple(replace(trace, only_steps=tuple(kind.steps.tolist()), run=None) for kind in kinds)


_NOWHERE = np.zeros(0, np.intp)
_NONE = StepKinds((), _NOWHERE, _NOWHERE)


def _alone(rows: Rows, lasting: Times, work: Times) -> StepKinds:
    return StepKinds((_kind("", rows, lasting, work),), _NOWHERE, _NOWHERE)


def _kind(label: str, group: Rows, lasting: Times, work: Times) -> StepKind:
    return StepKind(
        label=label,
        steps=group,
        median_ns=int(np.median(lasting[group])),
        total_ns=int(lasting[group].sum()),
        launches=int(np.median(work[group])),
        far_ns=_far_ns(lasting[group]),
    )


def _far_ns(values: Times) -> int:
    """How far from the median a step of this kind is an exception; see ``steps._outliers``."""
    middle = median(values.tolist())
    scatter = MAD_TO_SIGMA * median(np.abs(values - middle).tolist())
    return int(max(OUTLIER_DEVIATIONS * scatter, OUTLIER_FLOOR_RATIO * middle))


@once_per_trace
def launches_per_step(trace: Trace) -> Times:
    """Device operations that each step issued; without a device its operators.

    What has no recorded call in a file that links others was issued before the recording."""
    found, by = steps(trace), issued(trace)
    end = np.append(found.host_start_ns[1:], found.end_ns[-1:])
    if trace.device_ops is not None and len(trace.device_ops):
        counts = by.linked if by.linked.any() else np.ones(len(by.linked), np.bool_)
        return sum_per_window(by.start_ns[counts], found.host_start_ns, end)
    host = trace.host_ops
    if host is None:
        return np.zeros(len(found), np.int64)
    mine = (host["kind"] == HostKind.OPERATOR) & (host["thread"] == main_thread(trace))
    return sum_per_window(host["start_ns"][mine], found.host_start_ns, end)


def _settles(found: Steps, rows: Rows) -> bool:
    """Whether only later steps are typical, as while a profiler warms up."""
    half = len(rows) // 2
    if len(rows) < FEWEST_TO_SETTLE or found.typical[rows[:half]].any():
        return False
    lasting = found.durations_ns
    return bool(np.median(lasting[half:]) < SETTLED_RATIO * np.median(lasting[:half]))


def _by_passes(trace: Trace, rows: Rows, lasting: Times) -> list[Rows]:
    """Steps with a backward pass, an optimizer or a prompt apart from those without, where that
    shows in their time: however rarely they come, they are no incidents."""
    has = sum((count[rows] > 0) << bit for bit, count in enumerate(_passes(trace).values()))
    groups = [rows[has == of] for of in distinct(has).tolist()]
    usual = sorted(float(np.median(lasting[group])) for group in groups)
    apart = all(long > SAME_WORK_RATIO * short for short, long in pairwise(usual))
    return groups if apart else [rows]


def _by_duration(rows: Rows, lasting: Times) -> list[Rows]:
    order = rows[np.argsort(lasting[rows], kind="stable")]
    ordered = np.maximum(lasting[order], 1)
    return np.split(order, np.flatnonzero(ordered[1:] > OTHER_KIND_RATIO * ordered[:-1]) + 1)


def _only_the_beginning(
    group: Rows, groups: list[Rows], rows: Rows, lasting: Times, work: Times
) -> bool:
    """Whether steps do the same work as a later kind and are just its slow first ones."""
    first = rows[: len(group)]
    if not np.array_equal(np.sort(group), first):
        return False
    return any(
        lasting[other].max() < lasting[group].min() and _same_work(work, group, other)
        for other in groups
        if other is not group
    )


def _same_work(work: Times, one: Rows, other: Rows) -> bool:
    low, high = sorted((float(np.median(work[one])), float(np.median(work[other]))))
    return high <= SAME_WORK_RATIO * low


def _usual(group: Rows, lasting: Times) -> Rows:
    """The group without what is far from its median."""
    away = np.abs(lasting[group] - np.median(lasting[group]))
    return np.sort(group[away <= _far_ns(lasting[group])])


def _nearest(kinds: tuple[StepKind, ...], launches: int) -> int:
    """The kind with the most similar amount of work; of several alike the one with most time."""
    away = [abs(np.log((launches + 1) / (kind.launches + 1))) for kind in kinds]
    close = np.log(SAME_WORK_RATIO)
    return next(i for i, a in enumerate(away) if a <= min(away) + close)


def _labels(trace: Trace, groups: list[Rows], work: Times) -> list[str]:
    """What sets each kind apart: a pass that only some have, else their inputs or launches."""
    if len(groups) < 2:
        return [""] * len(groups)
    inputs = _first_inputs(trace)
    usual = [
        Counter(inputs.get(row) for row in group.tolist()).most_common(1)[0] for group in groups
    ]
    launches = [f"{int(np.median(work[group])):,} launches" for group in groups]
    told = [shape for shape, count in usual]
    if None not in told and len(set(told)) == len(told):
        launches = [f"inputs of {'×'.join(map(str, shape))}" for shape in told if shape]
    apart = launches if len(set(launches)) > 1 else [""] * len(groups)
    return [_label(trace, group, groups) or rest for group, rest in zip(groups, apart, strict=True)]


def _label(trace: Trace, group: Rows, groups: list[Rows]) -> str:
    for words, count in _passes(trace).items():
        has = [bool(np.median(count[g])) for g in (group, *groups)]
        if any(has) and not all(has):
            return words[0] if has[0] else words[1]
    return ""


def _passes(trace: Trace) -> dict[tuple[str, str], Times]:
    """How often each step has what only some kinds have, by the words for those with and without
    it."""
    prompts = np.zeros(len(steps(trace)), np.int64)
    for row, shape in _first_inputs(trace, ("aten::embedding",)).items():
        prompts[row] = len(shape) > 1 and shape[-1] > 1  # decoding looks one token up a sequence
    return {
        ("with a backward pass", "without a backward pass"): backward_per_step(trace),
        ("with an optimizer step", "without an optimizer step"): _optimizers_per_step(trace),
        ("prefill", "decode"): prompts,
    }


# Operators at which the data of a step enters a model, and which input it is.
_ENTRY = {
    "aten::embedding": 1, "aten::linear": 0, "aten::conv1d": 0, "aten::conv2d": 0,
    "aten::conv3d": 0, "aten::matmul": 0, "aten::mm": 0, "aten::addmm": 1,
}  # fmt: skip


def _first_inputs(trace: Trace, names: Container[str] = _ENTRY) -> dict[int, Shape]:
    """By step, the shape that the first operator of these names gets its data in."""
    host, found = trace.host_ops, steps(trace)
    if host is None or not host.known("shapes").any():
        return {}
    rows = np.flatnonzero(rows_named(trace, host, names.__contains__) & host.known("shapes"))
    rows = rows[np.argsort(host["start_ns"][rows], kind="stable")]
    end = np.append(found.host_start_ns[1:], found.end_ns[-1:])
    within = window_of(host["start_ns"][rows], found.host_start_ns, end)
    rows, within = rows[within < len(found)], within[within < len(found)]
    step, first = np.unique(within, return_index=True)
    inputs: dict[int, Shape] = {}
    for number, row in zip(step.tolist(), rows[first].tolist(), strict=True):
        given = input_shapes(trace.text(host, "shapes", row) or "") or ()
        at = _ENTRY[trace.text(host, "name", row) or ""]
        shape = tuple(n for n in given[at] or () if isinstance(n, int)) if at < len(given) else ()
        if shape:
            inputs[number] = shape
    return inputs


@once_per_trace
def backward_per_step(trace: Trace) -> Times:
    """Nodes of the backward pass that each step runs."""
    return _named_per_step(trace, "autograd::engine::evaluate_function")


def _optimizers_per_step(trace: Trace) -> Times:
    return _named_per_step(trace, "Optimizer.step")


def _named_per_step(trace: Trace, beginning: str) -> Times:
    found, host = steps(trace), trace.host_ops
    if host is None:
        return np.zeros(len(found), np.int64)
    at = host["start_ns"][rows_named(trace, host, lambda name: name.startswith(beginning))]
    end = np.append(found.host_start_ns[1:], found.end_ns[-1:])
    return sum_per_window(at, found.host_start_ns, end)
