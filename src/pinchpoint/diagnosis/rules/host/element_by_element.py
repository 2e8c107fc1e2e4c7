"""A tensor is made from Python objects, element by element.

## What it looks for
Calls of `torch.tensor` and its like that take many times what copying so many numbers takes, by
themselves: at least 10 ns for each element of the tensor that comes out. Needs Python stacks and
shapes. A tensor that is made from one array is copied in one go, and is none.

## Why it matters
A list is gone through with Python's lock held, and each number in it becomes an object first. Of a
list of arrays that is done for every number in them, which takes a hundred times the copy.

## How to fix it
Put the arrays together first: `torch.from_numpy(np.stack(arrays))`, or `torch.stack(tensors)`. Keep
numbers in arrays from the beginning, not in lists.

## When to ignore it
Small lists, and what is done once.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import parents
from pinchpoint.analysis.host.input_arguments import elements as elements_of
from pinchpoint.analysis.host.input_arguments import tensor_shapes
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import per_step, rows_in_steps
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.evidence.host_spans import outermost
from pinchpoint.diagnosis.evidence.whole_run import line_of_call
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named

RULE = Rule(needs=("host_ops",), record=STACKS, removes_host_work=True)

_MAKES = regex(r"<built-in (method|function) (tensor|as_tensor|asarray|new_tensor)\b")
_RESULT = ("aten::to", "aten::lift_fresh", "aten::detach_")  # what they do with the new tensor
# Measured on a CPU, torch 2.13: 150 ns for each number in a list or in a list of arrays, 450 for
# each tensor in one, 0.3 where one array is copied, 0.2 more where arrays are put together first. A
# machine may be ten times faster; none copies slower than 4 GB/s, a byte at a time twice.
LEAST_NS_PER_ELEMENT = 10.0
# What remains: an element is copied twice, eight bytes at 8 GB/s each time.
LEFT_NS_PER_ELEMENT = 2.0


def check(trace: Trace) -> Iterator[Found]:
    """The function that makes most tensors so."""
    host = trace.host_ops
    if host is None:
        return
    makes = rows_named(trace, host, lambda name: _MAKES.match(name) is not None)
    rows = np.flatnonzero(outermost(trace, makes) & rows_in_steps(trace, host))
    elements = _elements(trace, rows)
    inside = np.zeros(len(host) + 1, np.int64)
    np.add.at(inside, parents(host), host["duration_ns"])
    own = np.maximum(host["duration_ns"][rows] - inside[rows], 0)
    slow = (elements > 0) & (own >= LEAST_NS_PER_ELEMENT * np.maximum(elements, 1))
    rows, own, elements = rows[slow], own[slow], elements[slow]
    if not len(rows):
        return
    place, mine = busiest_place(trace, rows, own)
    rows, own, elements = rows[mine], own[mine], elements[mine]
    took, numbers = int(own.sum()), int(elements.sum())
    at = line_of_call(trace, place, "tensor")
    each = took / numbers
    yield Found(
        summary=(
            f"A tensor is made from a list{f' in {at}' if at else ''}, element by element:"
            f" {each:,.0f} ns for each of {per_step(trace, numbers):,.0f} elements, which are"
            f" {duration(round(per_step(trace, took)))} of each recorded step"
        ),
        evidence=(
            Evidence("making tensors so", round(per_step(trace, took)), "ns per step"),
            Evidence("for each element", round(each, 1), "ns"),
            Evidence("calls", round(per_step(trace, len(rows)), 2), "per step"),
        ),
        cost_ns_per_step=round(per_step(trace, took)),
        changes=(ScaleHostSpans(rows, min(LEFT_NS_PER_ELEMENT * numbers / took, 1.0)),),
        location=at,
        fix="Put arrays together first and make it from one; keep numbers in arrays, not in lists",
        hint="batch = torch.from_numpy(np.stack(arrays))  # of tensors: torch.stack(tensors)",
        confidence="high",
    )


def _elements(trace: Trace, rows: Rows) -> Rows:
    """Of the tensor that each call makes; 0 where shapes do not tell."""
    host = trace.host_ops
    assert host is not None
    found = np.zeros(len(host) + 1, np.int64)
    named = rows_named(trace, host, _RESULT.__contains__) & host.known("shapes")
    parent = parents(host)
    wanted = np.zeros(len(host) + 1, np.bool_)
    wanted[rows] = True
    for row in np.flatnonzero(named & wanted[parent]).tolist():
        shapes = tensor_shapes(trace.text(host, "shapes", row) or "")
        if shapes:
            found[parent[row]] = max(found[parent[row]], elements_of(shapes[0]))
    return found[rows]
