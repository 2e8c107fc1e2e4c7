"""Which framework a recording shows, and advice in its words."""

import msgspec

from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.rule import Framework, Rule
from pinchpoint.trace import Trace, once_per_trace

_SIGNS_OF_TORCH = ("aten::", "at::native", "torch")  # operators; kernels; functions and ranges
_HAS_TORCH_CUDA = ("nvidia", "amd")  # ROCm builds keep the name


@once_per_trace
def framework_of(trace: Trace) -> Framework:
    """By the names in the recording; memory snapshots are PyTorch's, and have no names."""
    recorded = any(table is not None and len(table) for table in (trace.host_ops, trace.device_ops))
    if not recorded or any(sign in name for name in trace.names for sign in _SIGNS_OF_TORCH):
        vendors = {device.vendor for device in trace.devices if device.vendor}
        cuda = not vendors or not vendors.isdisjoint(_HAS_TORCH_CUDA)
        return Framework.TORCH if cuda else Framework.TORCH_WITHOUT_CUDA
    if any(name.startswith("cupy_") for name in trace.names):
        return Framework.CUPY
    return Framework.OTHER


def shows_torch(trace: Trace) -> bool:
    """Whether options of PyTorch's profiler are of use to the program."""
    return framework_of(trace) in (Framework.TORCH, Framework.TORCH_WITHOUT_CUDA)


def in_program(framework: Framework, rule: Rule, found: Found) -> Found:
    """The finding with the advice that its rule has for a framework."""
    advice = rule.advice.get(framework)
    if advice is None and framework is Framework.CUPY:
        advice = rule.advice.get(Framework.OTHER)
    return msgspec.structs.replace(found, **advice) if advice else found
