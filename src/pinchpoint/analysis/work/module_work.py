"""FLOPs, bytes and parameters of each ``nn.Module``, from the operators that run in it.

Work of the backward pass belongs to the module whose forward operator it differentiates.
Parameters are the weights that the operators of one call are given: those of tied or sharded
layers count as often as they are used, and weights of operators that are not listed do not.
"""

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.attribution import forward_rows
from pinchpoint.analysis.host.input_arguments import elements, input_shapes
from pinchpoint.analysis.work.operator_work import work_by
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints

# Inputs that are parameters, by their positions in the operators' schemas.
_PARAMETERS = {
    "aten::linear": (1, 2), "aten::conv1d": (1, 2), "aten::conv2d": (1, 2), "aten::conv3d": (1, 2),
    "aten::conv_transpose1d": (1, 2), "aten::conv_transpose2d": (1, 2), "aten::embedding": (0,),
    "aten::layer_norm": (2, 3), "aten::group_norm": (2, 3), "aten::batch_norm": (1, 2),
    "aten::rms_norm": (2,), "aten::prelu": (1,), "aten::bilinear": (2, 3),
}  # fmt: skip


@dataclass(frozen=True)
class ModuleWork:
    """Of a module itself, without the modules inside it; None where nothing is known."""

    flops: int | None  # whole recording
    bytes: int | None
    parameters: int | None


@once_per_trace
def module_work(trace: Trace) -> dict[str, ModuleWork]:
    """By the module's name (``Linear_3``); empty where modules or shapes are not recorded."""
    host = trace.host_ops
    if host is None or not len(host) or not (host["kind"] == HostKind.MODULE).any():
        return {}
    inside = _modules_of_rows(trace)
    work = work_by(trace, inside)
    own = _parameters(trace, inside)
    found = {}
    for at in sorted({*work, *own}):
        does = work.get(at)
        found[trace.names[at].removeprefix("nn.Module: ")] = ModuleWork(
            None if does is None else does.flops, None if does is None else does.bytes, own.get(at)
        )
    return found


def _modules_of_rows(trace: Trace) -> Ints:
    """Position in ``trace.names`` of the module around each row's forward operator, or -1."""
    host = trace.host_ops
    assert host is not None
    module = np.append(nearest(parents(host), host["kind"] == HostKind.MODULE), len(host))
    found: Ints = np.append(host["name"].astype(np.int64), -1)[module[forward_rows(trace)]]
    return found


def _parameters(trace: Trace, inside: Ints) -> dict[int, int]:
    """Elements of the weights that one call of each module is given."""
    host = trace.host_ops
    assert host is not None
    call = np.append(nearest(parents(host), host["kind"] == HostKind.MODULE), len(host))
    numbers = {at: name for at, name in enumerate(trace.names) if name in _PARAMETERS}
    rows = np.isin(host["name"], list(numbers)) & (inside >= 0) & host.known("shapes")
    of_call: dict[int, int] = {}
    for row in np.flatnonzero(rows & (host["kind"] == HostKind.OPERATOR)).tolist():
        shapes = input_shapes(trace.names[host["shapes"][row]]) or ()
        count = 0
        for at in _PARAMETERS[numbers[int(host["name"][row])]]:
            shape = shapes[at] if at < len(shapes) else None
            if shape and not isinstance(shape[0], tuple):
                count += elements(shape)
        of_call[int(call[row])] = of_call.get(int(call[row]), 0) + count
    most: dict[int, int] = {}
    for row, count in of_call.items():
        if row < len(host):
            name = int(host["name"][row])
            most[name] = max(most.get(name, 0), count)
    return most
