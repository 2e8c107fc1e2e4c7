"""Random numbers are drawn on the CPU and copied to the device in each step.

## What it looks for
An operator that fills a tensor on the CPU with random numbers (`torch.randn`, `torch.rand`,
`torch.randint`, `tensor.normal_`), and next in the same thread, with nothing but views and factors
between, a copy to the device that is given a tensor of the same shape and moves that many numbers.
Where another tensor has a part in what is copied (noise that is added to a batch from the loader)
nothing is said, nor without shapes.

## Why it matters
A CPU draws from one generator in one thread, some nanoseconds a number, and writes to memory that
it may have to ask the system for each time; then all of it crosses the link, from ordinary memory
at a fraction of its rate. A device draws the same in the time of one write. The device idles as
soon as its queue is shorter than that, on a busy machine first.

## How to fix it
Draw where the numbers are used: `torch.randn(shape, device=device, generator=generator)`, with a
generator of that device. The numbers are others, of the same distribution.

## When to ignore it
Where the very same numbers are needed on other machines.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import above, nearest, parents, subtree_sums
from pinchpoint.analysis.host.input_arguments import Shape, elements, tensor_shapes
from pinchpoint.analysis.steps.in_steps import per_step, rows_in_steps
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.evidence.host_spans import without
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import HostKind, MemoryKind, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named

RULE = Rule(needs=("host_ops", "device_ops", "api_calls"), record=SHAPES, advice=NO_HINT)

_DRAWN = ("normal_", "uniform_", "random_", "bernoulli_", "exponential_", "log_normal_", "cauchy_")
DRAWS = frozenset(f"aten::{name}" for name in (*_DRAWN, "geometric_"))
_FROM_HOST = (MemoryKind.PAGEABLE, MemoryKind.PINNED, MemoryKind.HOST)
_WIDTHS = (1, 2, 4, 8, 16)  # bytes of a number, as it is or converted before it is copied


def check(trace: Trace) -> Iterator[Found]:
    """Draws of all places together: one generator is moved."""
    host = trace.host_ops
    assert host is not None
    top = _outermost_operators(trace)
    drawing, moved = _on_host(trace), _moved(trace, top)
    if not drawing.any() or not moved:
        return
    if not host.known("shapes")[drawing].any():
        raise NotChecked("shapes were not recorded")
    drawn = {int(top[row]): row for row in np.flatnonzero(drawing).tolist()}
    pairs = [
        (first, last)
        for first, last in _followed_by_copies(trace, top, drawn, moved)
        if _is_of(trace, drawn[first], last, moved[last])
    ]
    if not pairs:
        return
    first, last = (np.unique(np.array(some, np.intp)) for some in zip(*pairs, strict=True))
    took = round(per_step(trace, int(host["duration_ns"][first].sum())))
    copied = per_step(trace, sum(moved[row] for row in last.tolist()))
    both = np.union1d(first, last)
    place = busiest_place(trace, first, host["duration_ns"][first].astype(np.int64))[0]
    where = f" in {place}" if place else ""
    yield Found(
        summary=(
            f"{copied / 1e6:.3g} MB a step of random numbers are drawn on the CPU{where}, which"
            f" takes it {duration(took)} as recorded, and copied to the device"
        ),
        evidence=(
            Evidence(
                "host time of the draws", took, "ns per step", int(host["start_ns"][first[0]])
            ),
            Evidence("draws", round(per_step(trace, len(first)), 2), "per step"),
            Evidence("copied", round(copied), "bytes per step"),
        ),
        cost_ns_per_step=round(per_step(trace, int(host["duration_ns"][both].sum()))),
        changes=without(trace, both),
        location=place,
        fix="Draw on the device, from a generator of its own",
        hint="torch.randn(shape, device=device, generator=torch.Generator(device).manual_seed(0))",
        confidence="high",
    )


def _outermost_operators(trace: Trace) -> Rows:
    """The outermost operator that is or encloses each row; as many as there are rows for none."""
    host = trace.host_ops
    assert host is not None
    up, operators = parents(host), host["kind"] == HostKind.OPERATOR
    found: Rows = nearest(up, operators & (above(up, operators) == len(host)))
    return found


def _on_host(trace: Trace) -> Mask:
    """Draws in judged steps that start no work of the device."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    launched = np.zeros(len(host) + 1, np.int64)
    np.add.at(launched, ops.filled("host_op", len(host)).astype(np.intp), 1)
    draws = rows_named(trace, host, DRAWS.__contains__) & (host["kind"] == HostKind.OPERATOR)
    alone: Mask = draws & (subtree_sums(parents(host), launched[:-1]) == 0)
    return alone & rows_in_steps(trace, host)


def _moved(trace: Trace, top: Rows) -> dict[int, int]:
    """Bytes that operators copy to the device, by their outermost one."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    copies = np.isin(ops.filled("from_memory", 0), _FROM_HOST)
    copies &= (ops.filled("to_memory", 0) == MemoryKind.DEVICE) & ops.known("host_op")
    rows = np.flatnonzero(copies)
    found: dict[int, int] = defaultdict(int)
    by = np.append(top, len(host))[ops["host_op"][rows].astype(np.intp)]
    for row, size in zip(by.tolist(), ops.filled("bytes", 0)[rows].tolist(), strict=True):
        if row < len(host):
            found[row] += size
    return found


def _followed_by_copies(
    trace: Trace, top: Rows, drawn: dict[int, int], moved: dict[int, int]
) -> Iterator[tuple[int, int]]:
    """Draws and the copies that come next in their thread, by their outermost operators."""
    host = trace.host_ops
    assert host is not None
    outer = np.flatnonzero(top == np.arange(len(host)))
    order: Ints = outer[np.lexsort((host["start_ns"][outer], host["thread"][outer]))]
    following = dict(zip(order[:-1].tolist(), order[1:].tolist(), strict=True))
    for row in drawn:
        after = following.get(row)
        while after is not None and after not in moved and _keeps(trace, after):
            after = following.get(after)
        if after in moved and host["thread"][after] == host["thread"][row]:
            yield row, after


def _keeps(trace: Trace, row: int) -> bool:
    """Whether an operator has one tensor with dimensions at most: a view, a factor, a cast."""
    return len([shape for shape in _shapes(trace, row) if shape]) <= 1


def _is_of(trace: Trace, draw: int, copy: int, size: int) -> bool:
    """Whether as many numbers are copied as were drawn, of a tensor of that shape."""
    drawn = next(iter(_shapes(trace, draw)), ())
    many = elements(drawn)
    return drawn in _shapes(trace, copy) and size in [many * width for width in _WIDTHS]


def _shapes(trace: Trace, row: int) -> tuple[Shape, ...]:
    assert trace.host_ops is not None
    text = trace.text(trace.host_ops, "shapes", row)
    return tensor_shapes(text) if text else ()
