"""Deterministic algorithms are on: slower ways stand in for kernels that add by atomics.

## What it looks for
`index_add_`, `scatter_add_`, `scatter_reduce_`, `index_copy_` or `put_` that call `index_put_`
inside, with its sort and its kernel that walks through equal indices. PyTorch takes that way only
under `torch.use_deterministic_algorithms(True)`; without it, these operators are one kernel of
atomic additions. A program that calls `index_put_` itself is another matter
(index-backward-duplicates). And, where Python frames were recorded, calls of
`torch.nn.functional.interpolate` that run PyTorch's decomposition in Python, which without the mode
are one kernel: of each, one of its lookups, and in the backward pass one of its additions (by
atomics), move what that kernel does. And `fill_` right inside of what makes room for a tensor
(`empty`, `empty_like`, `empty_strided`, `resize_`): only this mode fills what nobody wrote. Not
checked without operators; without shapes or on an unknown device the gain of other additions is
not predicted.

## Why it matters
Each call sorts its indices and reads them back in order, and where many are equal they are added
serially. A resize by a decomposition takes dozens of kernels, and four such additions backward. The
mode also fills each fresh buffer (with NaN), the results of casts, copies, normalisations and
dropout among them, which are then written whole; and it picks slower kernels elsewhere.

## How to fix it
`torch.use_deterministic_algorithms(False)` for training; keep the mode for tests that compare
results bit by bit. Seeds do not need it. Fills go alone, and determinism stays, with
`torch.utils.deterministic.fill_uninitialized_memory = False`.

## When to ignore it
Where results must be equal to the last bit; fills, where the program reads what it did not write.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from pinchpoint.analysis.host.ancestry import above, nearest, parents, within_rows
from pinchpoint.analysis.host.attribution import forward_rows
from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.replay import Change, DropDeviceOps, ScaleDeviceOps, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import rows_in_steps
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.diagnosis.evidence.attainable import attainable
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.host_spans import named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_OF_INPUTS
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Floats, Mask, Rows, distinct
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("device_ops", "host_ops"), record=SHAPES_OF_INPUTS, advice=NO_HINT)

_ATOMIC_OTHERWISE = (
    "aten::index_add_",
    "aten::index_add",
    "aten::scatter_add_",
    "aten::scatter_add",
    "aten::scatter_reduce_",
    "aten::index_copy_",
    "aten::put_",
)


def check(trace: Trace) -> Iterator[Found]:
    """Fills, decomposed resizes, sorted additions of operators that add by atomics otherwise."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None:
        return
    yield from _fills(trace)
    yield from _resizes(trace)
    work = device_work(trace, _inside(trace), "sorted additions by index")
    if work is None:
        return
    yield Found(
        summary=(
            "Deterministic algorithms are on: additions by index are sorted and done in order,"
            f" {work.count:.0f} kernels and {duration(work.ns_per_step)} of each recorded step"
        ),
        evidence=(*work.evidence, Evidence("operator that sorts", "aten::index_put_", "")),
        cost_ns_per_step=work.ns_per_step,
        changes=tuple(_by_atomics(trace, work.rows)),
        location=work.place,
        fix="Switch deterministic algorithms off where results need not be equal bit by bit",
        hint="torch.use_deterministic_algorithms(False)",
    )


# Operators that make room and write nothing; in this mode each calls ``fill_`` on what it made.
_MAKES_ROOM = regex(r"^aten::(new_empty\w*|empty(_like|_strided|_permuted)?|resize_)$")


def _fills(trace: Trace) -> Iterator[Found]:
    """What is filled by the operator that made room for it."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    makes = named(trace, lambda name: _MAKES_ROOM.match(name) is not None)
    within = np.append(makes, False)[np.append(parents(host), len(host))]
    filled = named(trace, lambda name: name == "aten::fill_") & within[:-1]
    launched = np.append(filled, False)[ops.filled("host_op", len(host))]
    work = device_work(trace, launched, "fills of fresh buffers")
    if work is None:
        return
    spans = np.flatnonzero(filled)
    spans = spans[rows_in_steps(trace, host)[spans]]
    yield Found(
        summary=(
            "Deterministic algorithms are on and fill each fresh buffer before it is written:"
            f" {work.count:.0f} fills and {duration(work.ns_per_step)} of each recorded step"
        ),
        evidence=(*work.evidence, Evidence("operator that fills", "aten::fill_", "")),
        cost_ns_per_step=work.ns_per_step,
        changes=(DropDeviceOps(work.rows), ScaleHostSpans(spans, 0.0)),
        location=work.place,
        fix="Switch the filling of fresh buffers off: algorithms stay deterministic without it",
        hint="torch.utils.deterministic.fill_uninitialized_memory = False",
    )


def _inside(trace: Trace) -> Mask:
    """Device operations of operators that call ``index_put_`` and would not without the mode."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    chain = parents(host)
    outer = named(trace, lambda name: name in _ATOMIC_OTHERWISE)
    around = np.append(nearest(chain, outer), len(host))
    from pinchpoint.diagnosis.rules.compute._scattered_adds import SORTED

    sorting = around[np.flatnonzero(named(trace, lambda name: name in SORTED))]
    sorts = np.zeros(len(host) + 1, np.bool_)
    sorts[sorting] = True
    sorts[len(host)] = False
    found: Mask = sorts[around[ops.filled("host_op", len(host))]]
    return found


def _by_atomics(trace: Trace, rows: Rows) -> Iterator[Change]:
    """One kernel for each call, as long as its additions take; the rest is dropped."""
    ops, calls, well = trace.device_ops, launched_calls(trace), attainable(trace)
    if well is None or ops is None:
        return
    from pinchpoint.diagnosis.rules.compute._scattered_adds import adds_ns

    wanted = calls.numbers(partial(adds_ns, well))[rows]
    order = np.lexsort((-ops["duration_ns"][rows], calls.operator[rows]))
    first = np.append(True, np.diff(calls.operator[rows][order]) != 0)
    longest = np.zeros(len(rows), np.bool_)
    longest[order[first]] = True
    kept = longest & ~np.isnan(wanted)
    if not kept.any():
        return
    took = ops["duration_ns"][rows[kept]].astype(np.float64)
    yield ScaleDeviceOps(rows[kept], np.minimum(wanted[kept] / np.maximum(took, 1.0), 1.0))
    yield DropDeviceOps(rows[~kept])


def _resizes(trace: Trace) -> Iterator[Found]:
    """Calls of ``interpolate`` that PyTorch takes apart, with their backward pass."""
    host, calls = trace.host_ops, _taken_apart(trace)
    assert host is not None
    inside = np.append(within_rows(parents(host), calls), False)[np.append(forward_rows(trace), -1)]
    assert trace.device_ops is not None
    launched = inside[trace.device_ops.filled("host_op", len(host))]
    work = device_work(trace, launched, "work of decomposed resizes")
    if work is None:
        return
    yield Found(
        summary=(
            "Deterministic algorithms are on: interpolate runs as a decomposition,"
            f" {work.count:.0f} kernels and {duration(work.ns_per_step)} of each recorded"
            " step, where a kernel of its own would do"
        ),
        evidence=(*work.evidence, Evidence("takes it apart", _DECOMPOSITIONS, "")),
        cost_ns_per_step=work.ns_per_step,
        changes=_as_one_kernel(trace, calls, work.rows),
        location=work.place,
        fix="Switch deterministic algorithms off where results need not be equal bit by bit",
        hint="torch.use_deterministic_algorithms(False)",
    )


_FUNCTIONAL, _DECOMPOSITIONS = "torch/nn/functional.py", "torch/_decomp/decompositions.py"
_LOOKS_UP = ("aten::_unsafe_index", "aten::index")


def _taken_apart(trace: Trace) -> Rows:
    """Rows of ``interpolate`` in the steps that call a decomposition. PyTorch does so in this mode
    alone; compilers trace it before, and leave no such frames in a step."""
    host = trace.host_ops
    assert host is not None
    calls = named(trace, partial(_is_in, _FUNCTIONAL, "interpolate"))
    inner = named(trace, partial(_is_in, _DECOMPOSITIONS, "_upsample"))
    calls, inner = (rows & (host["kind"] == HostKind.PYTHON) for rows in (calls, inner))
    around = above(parents(host), calls)[inner]
    found: Rows = distinct(around[around < len(host)]).astype(np.intp)
    return found[rows_in_steps(trace, host)[found]]


def _is_in(file: str, function: str, name: str) -> bool:
    frame = frame_of(name)
    return frame is not None and frame.file.endswith(file) and frame.function.startswith(function)


def _as_one_kernel(trace: Trace, calls: Rows, rows: Rows) -> tuple[Change, ...]:
    """One lookup of each call stays, and one addition of its backward pass, by atomics: they read
    and write what the kernel of its own does."""
    host, ops, well = trace.host_ops, trace.device_ops, attainable(trace)
    assert host is not None
    assert ops is not None
    from pinchpoint.diagnosis.rules.compute._scattered_adds import SORTED, adds_ns

    launched = launched_calls(trace)
    forward = np.append(forward_rows(trace), len(host))[ops.filled("host_op", len(host))[rows]]
    call = np.append(nearest(parents(host), _mask(len(host), calls)), len(host))[forward]
    looks_up = launched.where(lambda of: of.call.name in _LOOKS_UP)[rows]
    adds = launched.where(lambda of: of.call.name in SORTED)[rows]
    took = ops["duration_ns"][rows].astype(np.float64)
    kept_lookups, kept_adds = (_longest_of_each(call, took, of) for of in (looks_up, adds))
    alone = launched.numbers(partial(adds_ns, well))[rows] if well else np.full(len(rows), np.nan)
    if not kept_lookups.any() or np.isnan(alone[kept_adds]).any():
        return ()
    kept = np.zeros(len(rows), np.bool_)
    kept[kept_lookups] = kept[kept_adds] = True
    added = np.minimum(alone[kept_adds] / np.maximum(took[kept_adds], 1.0), 1.0)
    staying = launched.operator[rows[kept_lookups]]
    of_host = host["duration_ns"][staying].sum() / max(host["duration_ns"][calls].sum(), 1)
    changes = DropDeviceOps(rows[~kept]), ScaleHostSpans(calls, float(min(of_host, 1.0)))
    if not len(kept_adds):
        return changes
    return ScaleDeviceOps(rows[kept_adds], added), *changes


def _mask(rows: int, of: Rows) -> Mask:
    wanted = np.zeros(rows, np.bool_)
    wanted[of] = True
    return wanted


def _longest_of_each(call: Rows, took: Floats, wanted: Mask) -> Rows:
    """Positions of the longest wanted operation of each call."""
    at = np.flatnonzero(wanted)
    order = at[np.lexsort((-took[at], call[at]))]
    found: Rows = order[np.append(True, np.diff(call[order]) != 0)[: len(order)]]
    return found
