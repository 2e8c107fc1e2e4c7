"""Who wrote a Chrome trace, by what its frame, its processes and its events show."""

from collections.abc import Collection, Mapping
from typing import Any

from pinchpoint.importers.kineto.reading.rare import Rare
from pinchpoint.regex import regex

# Only positive signs count; a file without one has no known recorder.
#
# PyTorch's profiler (Kineto) is taken for the writer where
#
# - the frame has a member that only Kineto writes around events (``_HEADER``: all files since
# 2021 that were not taken apart by another tool), or - an event has both a category of Kineto's
# own and a name that PyTorch gives: an operator (``aten::mm``), a marker (``ProfilerStep#3``), a
# Python frame (``train.py(7): step``) or a module. Files of 2021, and those whose frame was cut
# away, show nothing else.
#
# A category or a name alone is no sign: other tools borrow ``kernel`` and ``cpu_op``. Two
# recorders write PyTorch's or a similar layout and name their processes: XLA's (``/host:CPU``)
# and Ascend's; so do timelines of TensorFlow 1.

TORCH = "torch.profiler"
ASCEND = "torch_npu.profiler"
XLA = "xprof"
_HOST_OF_XLA = "/host:CPU"
TIMELINE = "TensorFlow 1 timeline"
# ``/device:GPU:0/stream:13 Compute``, ``/job:localhost/replica:0/task:0/device:CPU:0 Tensors``;
# in the first versions ``/gpu:0`` and ``/cpu:0``
_OF_TIMELINE = regex(
    r"/(?:job:\w+/replica:\d+/task:\d+/)?(?:device:\w+|[cg]pu):\d+\S* (?:Compute|Tensors)$"
)

_OF_ASCEND = "Ascend Hardware"  # the process that holds what ran on the device
DEVICE_PROCESSES = (_OF_ASCEND,)  # whose events have no category that says what they are
_HEADER = frozenset(
    {
        *("schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds"),
        *("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules"),
    }
)
_NAMES = {
    "cpu_op": regex(r"(?:aten|autograd|c10d?|inductor|prims?|torch)::|ProfilerStep#\d"),
    "user_annotation": regex(r"ProfilerStep#\d|Optimizer\.\w+#"),
    "python_function": regex(r"nn\.Module: |<built-in |.*\(\d+\): "),
}
_NAMES["Operator"] = _NAMES["cpu_op"]  # as it was called in 2021


def sign_of_torch(category: str, name: str) -> bool:
    """Whether an event shows that PyTorch's profiler wrote it."""
    names = _NAMES.get(category)
    return names is not None and names.match(name) is not None


def recorder_of(
    frame: Mapping[str, Any], processes: Collection[str | None], *, shows_torch: bool
) -> str | None:
    """What wrote a file with these members and processes; None where nothing shows it.

    ``shows_torch``: an event is a ``sign_of_torch``.
    """
    if _OF_ASCEND in processes:
        return ASCEND
    if any(name is not None and _OF_TIMELINE.match(name) for name in processes):
        return TIMELINE
    return TORCH if shows_torch or not _HEADER.isdisjoint(frame) else None


def version_of_torch(frame: dict[str, Any]) -> str | None:
    """The version of PyTorch, where the frame has it."""
    version = frame.get("torch_version") or frame.get("pytorch_version")
    return version if isinstance(version, str) else None


def written_by_xla(rare: Rare) -> bool:
    """Whether the processes have the names of XLA's planes."""
    return any(name == _HOST_OF_XLA for name in rare.process_names.values())


def written_by_ascend(rare: Rare) -> bool:
    """Whether a process has the name of Ascend's device."""
    return _OF_ASCEND in rare.process_names.values()
