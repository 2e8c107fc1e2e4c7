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
_TORCH_OPTION = re.compile(  # with what leads to it: a colon, a comma, a bracket, an "or"
    r"(: |, | \(|,? or )[^,;:()]*"
    r"(record_shapes|with_stack|profile_memory|torch\.|ProfilerActivity)[^,;()]*\)?"
)
_IN_GENERAL = {  # what is to be done, where the advice names PyTorch's way
    "Let float32 products use TF32, or use bfloat16 autocast": (
        "Let float32 products use TF32, or use bfloat16"
    ),
    "Run forward and loss under bfloat16 autocast": "Compute forward and loss in bfloat16",
    "Remove torch.cuda.empty_cache() from the loop": "Keep the cache of device memory in the loop",
}
_OWN_WAYS = {  # a sign of another framework, and its own way to what a hint of PyTorch's does
    ("cupy_", "set_float32_matmul_precision"): "export CUPY_TF32=1  # before the program starts",
}
_TORCH_KNOB = "pinchpoint try --knob"
_ANY_PROGRAM = 'pinchpoint bench ab -- "python train.py" "python train_fixed.py"'


@once_per_trace
def shows_torch(trace: Trace) -> bool:
    """Whether any name in the recording is PyTorch's; memory snapshots are, and have no names."""
    if not any(table is not None and len(table) for table in (trace.host_ops, trace.device_ops)):
        return True
    return any(sign in name for name in trace.names for sign in _SIGNS_OF_TORCH)


def recordable(trace: Trace, record: str) -> str:
    """What to record, without the options of PyTorch's profiler where the program shows none."""
    return record if shows_torch(trace) else _TORCH_OPTION.sub("", record)


def in_its_words(trace: Trace, finding: Finding) -> Finding:
    """The finding without code and knobs that the program has no use for."""
    hint = finding.hint or ""
    if not shows_torch(trace):
        knob = finding.confirm.startswith(_TORCH_KNOB)
        return replace(
            finding,
            fix=_IN_GENERAL.get(finding.fix, finding.fix),
            hint=_own_way(trace, hint) if _TORCH_CODE.search(hint) else finding.hint,
            confirm=_ANY_PROGRAM if knob else finding.confirm,
        )
    vendors = {device.vendor for device in trace.devices if device.vendor}
    if "torch.cuda" in hint and vendors and vendors.isdisjoint(_HAS_TORCH_CUDA):
        return replace(finding, hint=None)
    return finding


def _own_way(trace: Trace, hint: str) -> str | None:
    """The same in the words of another framework that the recording shows; None if none is known"""
    for (sign, torch_way), own in _OWN_WAYS.items():
        if torch_way in hint and any(name.startswith(sign) for name in trace.names):
            return own
    return None
