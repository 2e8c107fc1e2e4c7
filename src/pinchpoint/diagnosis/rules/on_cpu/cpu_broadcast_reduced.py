"""On a CPU, all pairs of two tensors are written out by broadcasting, and then summed up.

## What it looks for
In a program without a device: a product or a difference of two tensors whose shapes are broadcast
to one of at least eight times the elements of the larger, and a million; then nothing but squares
or absolute values of as many elements, and a sum over them; with their backward pass. That is a
product of matrices, or distances of all pairs, by hand. Together they have to take a tenth of the
step. Where something else is computed from the pairs (a network, an exponential), they are needed,
and it is quiet.

## Why it matters
Each pair and each dimension is written to memory and read again, two or three times; a product of
matrices keeps its sums in registers, and does many times as many operations a second.

## How to fix it
`torch.einsum`, `a @ b.T` or `torch.cdist`; for squared distances |a|² + |b|² - 2 a·b.

## When to ignore it
Where differences of nearly equal vectors need all digits: the product form loses some of them.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.attribution import forward_rows
from pinchpoint.analysis.host.input_arguments import Shape, elements, input_shapes
from pinchpoint.analysis.host.lent_inputs import with_inputs
from pinchpoint.analysis.host.on_cpu import cpu_operators
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import SHAPES_AND_TYPES
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import judged, too_small
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=SHAPES_AND_TYPES, parent="cpu-page-faults", advice=NO_HINT)

LEAST_RATIO = 0.10  # of the step: host time varies by a tenth between runs of one program
GROWS_RATIO = 8  # times the larger tensor: of less, a batch is weighted, and not all pairs made
LEAST_ELEMENTS = 1 << 20  # 4 MB of float32, which leave the caches of a core
FLOP_PER_PAIR = 2  # multiply and add
PRODUCTS_BACK = 2  # the gradients of both sides, each a product of as many operations
# One core of a server of 2013 does as many in a product that is not square.
PRODUCT_FLOP_PER_S = 2e10
_PAIRS = {"aten::mul": "products", "aten::sub": "differences", "aten::rsub": "differences"}
_BETWEEN = frozenset(f"aten::{name}" for name in ("pow", "square", "abs", "mul", "pow_", "abs_"))
_SUMS = frozenset(f"aten::{name}" for name in ("sum", "mean", "linalg_vector_norm", "norm"))
MOST_BETWEEN = 3  # operators between the pairs and their sum


@dataclass(frozen=True)
class _Pairs:
    """One chain: rows of ``host_ops`` and what they hold."""

    rows: tuple[int, ...]
    what: str
    shape: Shape
    of: tuple[Shape, Shape]


def check(trace: Trace) -> Iterator[Found | Small]:
    """Chains from broadcast pairs to their sum."""
    mine = judged(trace)
    host, step_ns = trace.host_ops, steps(trace).typical_ns
    if mine is None or host is None or not step_ns:
        return
    shown = with_inputs(trace)
    assert shown.host_ops is not None
    if not shown.host_ops.known("shapes").any():
        raise NotChecked("the shapes of the inputs are not recorded")
    found = _chains(shown, np.flatnonzero(mine & cpu_operators(trace).called))
    if not found:
        return
    chained = np.array([row for one in found for row in one.rows], np.intp)
    wanted = np.isin(forward_rows(trace), chained)  # with their backward pass
    learns = int(wanted.sum()) > len(chained)
    spans = host_spans(trace, wanted, "in the pairs and their sum")
    if spans is None:
        return
    if small := too_small(trace, spans):
        yield small
        return
    if spans.ns_per_step < LEAST_RATIO * step_ns:
        yield Small(spans.ns_per_step / step_ns, LEAST_RATIO)
        return
    largest = max(found, key=lambda one: elements(one.shape))
    pairs = sum(elements(one.shape) for one in found) / max(len(judged_steps(trace)), 1)
    products = 1 + learns * PRODUCTS_BACK
    needs_ns = products * pairs * FLOP_PER_PAIR / PRODUCT_FLOP_PER_S * 1e9
    took_ns = per_step(trace, int(host["duration_ns"][spans.rows].sum()))
    a, b = (list(shape) for shape in largest.of)
    yield Found(
        summary=(
            f"{largest.what.capitalize()} of {a} and {b} are written out as {list(largest.shape)}"
            f" and summed up{spans.where}: {duration(spans.ns_per_step)} a step, where a product of"
            " matrices writes none of them"
        ),
        evidence=(
            *spans.evidence,
            Evidence("numbers written out", round(pairs), "per step"),
            Evidence("a product on a slow core", round(needs_ns), "ns per step"),
        ),
        cost_ns_per_step=spans.ns_per_step,
        changes=(ScaleHostSpans(spans.rows, min(needs_ns / max(took_ns, 1), 1.0)),),
        location=spans.place,
        fix=_FIXES[largest.what],
        hint=_HINTS[largest.what],
        confidence="medium",
    )


_FIXES = {
    "products": "Multiply and sum in one: a product of matrices, or torch.einsum",
    "differences": "Take torch.cdist, or |a|² + |b|² - 2 a·b for squares of distances",
}
_HINTS = {
    "products": 'torch.einsum("id,jd->ij", a, b)  # in place of (a[:, None] * b[None]).sum(-1)',
    "differences": "torch.cdist(a, b)  # in place of (a[:, None] - b[None]).pow(2).sum(-1).sqrt()",
}


def _chains(shown: Trace, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> list[_Pairs]:
    """``rows`` are those that the program called, in any order; of ``host_ops``."""
    host = shown.host_ops
    assert host is not None
    rows = rows[np.lexsort((host["start_ns"][rows], host["thread"][rows]))]
    names = [shown.names[n] for n in host["name"][rows].tolist()]
    texts = host.filled("shapes", -1)[rows].tolist()
    found = []
    for at, name in enumerate(names):
        if name not in _PAIRS or (pairs := _broadcast(shown, texts[at])) is None:
            continue
        shape, of = pairs
        end = at + 1
        while end < len(names) and end - at <= MOST_BETWEEN and _goes_on(names[end]):
            if _first(shown, texts[end]) != shape:
                break
            end += 1
        if end < len(names) and names[end] in _SUMS and _first(shown, texts[end]) == shape:
            whole = tuple(rows[at : end + 1].tolist())
            found.append(_Pairs(whole, _PAIRS[name], shape, of))
    return found


def _goes_on(name: str) -> bool:
    return name in _BETWEEN


def _first(shown: Trace, text: int) -> Shape | None:
    return next(iter(_tensors(shown, text)), None)


def _tensors(shown: Trace, text: int) -> list[Shape]:
    """Shapes of the first two inputs, as far as these are tensors with dimensions."""
    found: list[Shape] = []
    for shape in (input_shapes(shown.names[text]) if text >= 0 else None) or ():
        if not shape or isinstance(shape[0], tuple) or len(found) == 2:
            break
        found.append(tuple(n for n in shape if isinstance(n, int)))
    return found


def _broadcast(shown: Trace, text: int) -> tuple[Shape, tuple[Shape, Shape]] | None:
    """The shape of the result and of both tensors, where it is much larger than either."""
    tensors = _tensors(shown, text)
    if len(tensors) < 2:
        return None
    a, b = tensors
    try:
        shape = tuple(int(n) for n in np.broadcast_shapes(a, b))
    except ValueError:
        return None
    larger = max(elements(a), elements(b))
    if elements(shape) < max(GROWS_RATIO * larger, LEAST_ELEMENTS):
        return None
    return shape, (a, b)
