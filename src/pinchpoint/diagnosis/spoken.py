"""Advice in the words of the program: PyTorch's own only to programs that show PyTorch."""

import re
from dataclasses import replace

from pinchpoint.diagnosis.rule import Finding
from pinchpoint.trace import Trace, once_per_trace

_SIGNS_OF_TORCH = ("aten::", "at::native", "torch")  # operators; kernels; functions and ranges
_HAS_TORCH_CUDA = ("nvidia", "amd")  # ROCm builds keep the name
_TORCH_CODE = re.compile(
    r"torch|TORCH|DataLoader|DistributedDataParallel|\bmodel\b|\boptimizer\b|\bloss\b|\bF\.|\.item\("
)
_TORCH_KNOB = "pinchpoint try --knob"
_ANY_PROGRAM = 'pinchpoint bench ab -- "python train.py" "python train_fixed.py"'


@once_per_trace
def shows_torch(trace: Trace) -> bool:
    """Whether any name in the recording is PyTorch's; memory snapshots are, and have no names."""
    if trace.host_ops is None and trace.device_ops is None:
        return True
    return any(sign in name for name in trace.names for sign in _SIGNS_OF_TORCH)


def in_its_words(trace: Trace, finding: Finding) -> Finding:
    """The finding without code and knobs that the program has no use for."""
    hint = finding.hint or ""
    if not shows_torch(trace):
        knob = finding.confirm.startswith(_TORCH_KNOB)
        return replace(
            finding,
            hint=None if _TORCH_CODE.search(hint) else finding.hint,
            confirm=_ANY_PROGRAM if knob else finding.confirm,
        )
    vendors = {device.vendor for device in trace.devices if device.vendor}
    if "torch.cuda" in hint and vendors and vendors.isdisjoint(_HAS_TORCH_CUDA):
        return replace(finding, hint=None)
    return finding
