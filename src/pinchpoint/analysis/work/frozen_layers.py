"""Layers whose own weights get no gradient, though the backward pass runs through them.

A layer with trained weights makes two products in its backward node: for its input and for its
weight. One that is frozen makes the first alone, and only because something below it wants a
gradient. Autograd stores a gradient as soon as it has it, so that a frozen part is a stretch of the
backward pass in which nothing is stored. A cell that is called again and again stores its gradients
at the end, too, but its nodes make two products.
"""

from collections import Counter

import numpy as np

from pinchpoint.analysis.host.ancestry import above, nearest, parents
from pinchpoint.analysis.host.attribution import backward_nodes
from pinchpoint.analysis.host.input_arguments import Shape, input_shapes
from pinchpoint.analysis.host.source_lines import places
from pinchpoint.analysis.host.timeline import NO_ROW
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask, Rows
from pinchpoint.trace.names import rows_named

FEWEST_LAYERS = 4  # attention has two products without weights between those with
# Of the backward pass: with adapters in each layer, the frozen ones between two of them are less.
LEAST_RATIO = 0.25
_STORES = "torch::autograd::AccumulateGrad"


@dataclass(frozen=True, eq=False)
class FrozenLayers:
    """The frozen part of a step's backward pass, and what lies behind it."""

    rows: Rows  # of ``host_ops``: its outermost nodes from there on, in all judged steps
    layers: int  # a step, that make the product for their input alone
    before: Counter[Shape | None]  # gradients that were stored before it, in a step
    behind: Counter[Shape | None]  # gradients for whose sake it runs
    modules: tuple[str, ...]  # of these, as the recording numbers them


@once_per_trace
def frozen_layers(trace: Trace) -> FrozenLayers | None:
    """None where there are none in some judged step, or steps differ."""
    host, windows = trace.host_ops, judged_steps(trace)
    if host is None or not len(windows) or not host.known("shapes").any():
        return None
    backward = backward_nodes(trace)
    stored = rows_named(trace, host, lambda name: name == _STORES)
    stored &= above(parents(host), stored) == len(host)
    top = backward & (above(parents(host), backward) == len(host))
    products = _products(trace, backward)
    step = windows.step_of(host["start_ns"])
    parts = [
        _of_step(trace, np.flatnonzero(stored & (step == one)), top & (step == one), products)
        for one in range(len(windows))
    ]
    found = [part for part in parts if part is not None]
    if len(found) < len(windows) or any(one.behind != found[0].behind for one in found):
        return None
    first = found[0]
    rows = np.sort(np.concatenate([one.rows for one in found]))
    return FrozenLayers(rows, first.layers, first.before, first.behind, first.modules)


def _products(trace: Trace, backward: Mask) -> Ints:
    """Of each row that is a backward node, the products inside it."""
    host = trace.host_ops
    assert host is not None
    calls = np.flatnonzero(rows_named(trace, host, lambda name: name in ("aten::mm", "aten::bmm")))
    around = np.append(nearest(parents(host), backward), len(host))[calls]
    # Addmm's and Mm's nodes alone: of others, two products may have no weight at all.
    layers = np.append(
        rows_named(trace, host, lambda name: name in ("AddmmBackward0", "MmBackward0")), False
    )
    return np.bincount(around[layers[around]], minlength=len(host))


def _of_step(trace: Trace, stored: Rows, top: Mask, products: Ints) -> FrozenLayers | None:
    """By the longest stretch of the backward pass in which no gradient is stored."""
    host = trace.host_ops
    assert host is not None
    nodes = np.flatnonzero(top)
    if len(stored) < 2 or not len(nodes):
        return None
    stored = stored[np.argsort(host["start_ns"][stored], kind="stable")]
    at, begins = host["start_ns"][stored], host["start_ns"][nodes]
    longest = int(np.argmax(np.diff(at)))
    from_ns, to_ns = int(host.end_ns[stored[longest]]), int(at[longest + 1])
    whole_ns = int(host.end_ns[nodes].max() - begins.min())
    if to_ns - from_ns < LEAST_RATIO * whole_ns:
        return None
    inside = (host["start_ns"] >= from_ns) & (host["start_ns"] < to_ns)
    layers = int((inside & (products == 1)).sum())
    if layers < FEWEST_LAYERS or (inside & (products > 1)).any():
        return None
    return FrozenLayers(
        nodes[begins >= from_ns],
        layers,
        _shapes(trace, stored[: longest + 1]),
        _shapes(trace, stored[longest + 1 :]),
        _modules(trace, nodes, stored[longest + 1 :]),
    )


def _shapes(trace: Trace, rows: Rows) -> Counter[Shape | None]:
    assert trace.host_ops is not None
    texts = (input_shapes(trace.text(trace.host_ops, "shapes", row) or "") for row in rows.tolist())
    return Counter(given[0] if given else None for given in texts)  # type: ignore[misc]


def _modules(trace: Trace, nodes: Rows, stored: Rows) -> tuple[str, ...]:
    """Of the nodes right before these, each once, in order."""
    host, module = trace.host_ops, places(trace).module
    assert host is not None
    nodes = nodes[~np.isin(nodes, _outermost(trace, nodes, stored))]
    nodes = nodes[np.argsort(host["start_ns"][nodes], kind="stable")]
    last = np.searchsorted(host["start_ns"][nodes], host["start_ns"][stored], "right") - 1
    names = module[nodes[np.maximum(last, 0)]].tolist()
    spelt = (trace.names[name].removeprefix("nn.Module: ") for name in names if name != NO_ROW)
    return tuple(dict.fromkeys(spelt))


def _outermost(trace: Trace, nodes: Rows, stored: Rows) -> Rows:
    """Which of these nodes hold what stores a gradient."""
    host = trace.host_ops
    assert host is not None
    top = np.zeros(len(host), np.bool_)
    top[nodes] = True
    found: Rows = nearest(parents(host), top)[stored]
    return found
