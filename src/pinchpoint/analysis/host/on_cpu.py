"""Programs that compute on the CPU alone: an operator's time there is the work itself."""

import numpy as np

from pinchpoint.analysis.host.ancestry import parents
from pinchpoint.analysis.host.input_arguments import elements, input_shapes
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask

# at::internal::GRAIN_SIZE: elements that one thread computes; on fewer, calling an operator takes
# longer than what it does.
GRAIN_ELEMENTS = 32768


@once_per_trace
def computes_on_cpu(trace: Trace) -> bool:
    """Whether the recording is of operators and of nothing that starts or is a device.

    A file from a machine with a device lists it, also where its activity was not recorded: then
    an operator's time may be that of its launch alone.
    """
    tables = (trace.device_ops, trace.api_calls, trace.compiled_ops)
    if trace.devices or trace.snapshot is not None:
        return False
    if any(table is not None and len(table) for table in tables):
        return False
    host = trace.host_ops
    return host is not None and bool((host["kind"] == HostKind.OPERATOR).any())


@once_per_trace
def compiled_for_cpu(trace: Trace) -> bool:
    """Whether the recording is of programs that XLA compiled for the CPU, and of no device."""
    rows = trace.compiled_ops
    if trace.devices or rows is None or not len(rows):
        return False
    return not rows.known("device").any()


@dataclass(frozen=True, eq=False)
class CpuOperators:
    """Of all rows of ``host_ops``: which are operators, and what each takes by itself."""

    operator: Mask
    called: Mask  # operators that Python or the backward pass called, not another operator
    own_ns: Ints  # without the operators inside it; 0 for other rows
    parent: Ints


@once_per_trace
def cpu_operators(trace: Trace) -> CpuOperators:
    """Operators and their own time; the trace must have host rows."""
    host = trace.host_ops
    assert host is not None
    parent = parents(host)
    operator = host["kind"] == HostKind.OPERATOR
    node = _names_with(trace, "autograd::")
    inside = np.append(operator & ~node, False)[parent]
    own = np.where(operator, host["duration_ns"], 0).astype(np.int64)
    held = np.zeros(len(host) + 1, np.int64)
    np.add.at(held, parent[operator], host["duration_ns"][operator])
    own = np.maximum(own - np.where(operator, held[:-1], 0), 0)
    return CpuOperators(operator, operator & ~node & ~inside, own, parent)


def _names_with(trace: Trace, prefix: str) -> Mask:
    assert trace.host_ops is not None
    starts = np.array([name.startswith(prefix) for name in trace.names], np.bool_)
    found: Mask = starts[trace.host_ops["name"]]
    return found


@once_per_trace
def first_elements(trace: Trace) -> Ints:
    """Elements of the first tensor that each row of ``host_ops`` got; -1 where not recorded."""
    return elements_of(trace, 0)


def elements_of(trace: Trace, at: int) -> Ints:
    """The same of another one of its tensors, counted from 0."""
    host = trace.host_ops
    assert host is not None
    shapes = host.filled("shapes", -1)
    sizes = {-1: -1}
    for text in np.unique(shapes[shapes >= 0]).tolist():
        tensors = [s for s in input_shapes(trace.names[text]) or () if s]
        one = tensors[at] if at < len(tensors) else None
        whole = one is not None and not isinstance(one[0], tuple)
        sizes[text] = elements(one) if whole else -1  # type: ignore[arg-type]
    distinct, which = np.unique(shapes, return_inverse=True)
    found: Ints = np.array([sizes[text] for text in distinct.tolist()], np.int64)[which]
    return found
