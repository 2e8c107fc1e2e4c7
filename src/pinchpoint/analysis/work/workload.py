"""What kind of work the steps are: training or inference, prefill or decode, how large a batch."""

from collections import Counter

import numpy as np

from pinchpoint.analysis.host.ancestry import parents
from pinchpoint.analysis.host.input_arguments import Shape, input_shapes
from pinchpoint.analysis.steps.in_steps import judged_steps, rows_in_steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.names import rows_named

_BACKWARD = ("autograd::engine::evaluate_function", "torch::autograd::AccumulateGrad")
_OPTIMIZER = "Optimizer.step"
_UPDATES = ("aten::_foreach_add", "aten::_fused_", "aten::_foreach_lerp", "aten::_foreach_sub")
_ATTENTION = ("scaled_dot_product", "flash_attn", "paged_attention", "unified_attention")
_PRODUCTS = (
    "aten::linear", "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::matmul",
    "aten::_transformer_encoder_layer_fwd",  # a whole layer, in inference
)  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """Facts about the work of a step; None where the trace has no shapes to tell."""

    trains: bool
    accumulates: bool  # gradients are added to those of the step before, and no optimizer steps
    query_lengths: tuple[int, ...]  # of attention, the commonest of each step, in order
    key_lengths: tuple[int, ...]
    leading_dims: tuple[int, ...]  # first dimension of the inputs of products, commonest first
    parameters: float  # gradients accumulated a step: about the number of parameter tensors

    @property
    def decodes(self) -> bool:
        """Whether steps generate one token each: queries of length one."""
        return not self.trains and bool(self.query_lengths) and set(self.query_lengths) == {1}


@once_per_trace
def workload(trace: Trace) -> Workload:
    """What the judged steps do."""
    host = trace.host_ops
    if host is None or not len(host):
        return Workload(False, False, (), (), (), 0.0)
    inside = rows_in_steps(trace, host)
    backward = _starting(trace, _BACKWARD)
    optimizer = _starting(trace, (_OPTIMIZER,)) & (host["kind"] == HostKind.ANNOTATION)
    grads = _starting(trace, ("torch::autograd::AccumulateGrad",)) & inside
    attention = attention_rows(trace)
    query, key = _lengths(trace, np.flatnonzero(attention & inside))
    products = rows_named(trace, host, _PRODUCTS.__contains__)
    steps = max(len(judged_steps(trace)), 1)
    return Workload(
        trains=bool((backward | optimizer).any()),
        accumulates=_adds_to_gradients(trace, grads)
        and not ((optimizer | _starting(trace, _UPDATES)) & inside).any(),
        query_lengths=query,
        key_lengths=key,
        leading_dims=_leading(trace, np.flatnonzero(products & inside)),
        parameters=int(grads.sum()) / steps,
    )


def attention_rows(trace: Trace) -> Mask:
    """Host rows that are forward operators of attention, those inside others too."""
    assert trace.host_ops is not None
    operators = trace.host_ops["kind"] == HostKind.OPERATOR
    found: Mask = _containing(trace, _ATTENTION) & operators
    return found


def _adds_to_gradients(trace: Trace, grads: Mask) -> bool:
    """Whether gradients were there before: a first one is kept as it is, a later one is added."""
    host = trace.host_ops
    assert host is not None
    adds = rows_named(trace, host, "aten::add_".__eq__)
    return bool((adds & np.append(grads, False)[parents(host)]).any())


def _starting(trace: Trace, prefixes: tuple[str, ...]) -> Mask:
    assert trace.host_ops is not None
    return rows_named(trace, trace.host_ops, lambda name: name.startswith(prefixes))


def _containing(trace: Trace, words: tuple[str, ...]) -> Mask:
    assert trace.host_ops is not None

    def forward(name: str) -> bool:
        return any(word in name for word in words) and "backward" not in name.lower()

    return rows_named(trace, trace.host_ops, forward)


def _lengths(trace: Trace, rows: Rows) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Query and key lengths of attention, one of each step: shapes are (batch, head, length, d)."""
    host = trace.host_ops
    assert host is not None
    step = judged_steps(trace).step_of(host["start_ns"][rows])
    known = host.known("shapes")[rows]
    query: dict[int, Counter[int]] = {}
    key: dict[int, Counter[int]] = {}
    for row, at in zip(rows[known].tolist(), step[known].tolist(), strict=True):
        first, second, *_ = (*_shapes(trace, row), (), ())
        if len(first) == 4 and len(second) == 4:
            query.setdefault(at, Counter())[first[2]] += 1
            key.setdefault(at, Counter())[second[2]] += 1
    order = sorted(query)
    return _commonest(query, order), _commonest(key, order)


def _commonest(counts: dict[int, Counter[int]], order: list[int]) -> tuple[int, ...]:
    return tuple(counts[at].most_common(1)[0][0] for at in order)


def _leading(trace: Trace, rows: Rows) -> tuple[int, ...]:
    host = trace.host_ops
    assert host is not None
    counts: Counter[int] = Counter()
    names, times = np.unique(host["shapes"][rows[host.known("shapes")[rows]]], return_counts=True)
    for name, count in zip(names.tolist(), times.tolist(), strict=True):
        shapes = input_shapes(trace.names[name]) or ()
        first = shapes[0] if shapes else None
        if first and isinstance(first[0], int):
            counts[first[0]] += count
    return tuple(size for size, _ in counts.most_common())


def _shapes(trace: Trace, row: int) -> tuple[Shape, ...]:
    host = trace.host_ops
    assert host is not None
    text = trace.text(host, "shapes", row)
    found = input_shapes(text) if text else None
    return tuple(s for s in found or () if s and isinstance(s[0], int))
