"""Profiles of ONNX Runtime (``SessionOptions.enable_profiling``): nodes of a graph as they ran.

A list of Chrome trace events in microseconds. ``Session`` is what a session does (``model_run`` is
one request), ``Node`` a node of the graph: its ``_kernel_time`` is the work, the fences around it
(until 1.10) are waits for copies. ``Kernel`` is what a GPU ran, in builds with CUDA or ROCm
profiling. Without that, the time of a node on such a provider is that of giving it work.
Source: core/common/profiler.cc and core/framework/sequential_executor.cc of ONNX Runtime.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.assembly.timeline import Timeline
from pinchpoint.importers.files.memory import ROCPROF_JSON_TIMES, must_fit
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.health import Fact
from pinchpoint.regex import regex
from pinchpoint.trace import Device, HostKind, Source, Trace

FORMAT = "ONNX Runtime profile"
FILES = (".json", "ONNX Runtime: SessionOptions.enable_profiling")
READS: tuple[str, ...] = ("host", "device")
NOT_READ = "shapes, sizes of nodes, times of threads of a pool"

# The first events of a session, or of a profile that was started while it ran.
_SIGN = regex(
    rb'^\s*\[\s*\{\s*"cat"\s*:\s*"(Session|Node)"[^{}]*"name"\s*:\s*"(model_loading_\w+'
    rb'|session_initialization|model_run|SequentialExecutor::Execute|[^"]+_(kernel_time|fence_\w+))"'
)
_WORK = "_kernel_time"
_EXECUTOR = "Executor::Execute"  # SequentialExecutor's or ParallelExecutor's
_ON_THE_HOST = ("CPUExecutionProvider", "XnnpackExecutionProvider", "DnnlExecutionProvider")


def claims(path: Path, head: bytes) -> bool:
    """A list that begins with what a session, or a node of its graph, did."""
    return _SIGN.match(head.removeprefix(b"\xef\xbb\xbf")) is not None


def read(path: Path) -> Trace:
    """The trace; UnreadableFile for a list without such events, or one that is cut off."""
    with unpacked(path) as plain:
        must_fit(path, plain.stat().st_size, ROCPROF_JSON_TIMES)
        text = plain.read_bytes()
    timeline, elsewhere = Timeline(alone=True), set[str]()
    for event in _events(path, text):
        _add(timeline, event, elsewhere)
    if not (timeline.host or timeline.operations):
        raise UnreadableFile(
            f"{path}: a profile of ONNX Runtime in which nothing ran",
            hint="run the session before session.end_profiling()",
        )
    facts = []
    if elsewhere and not len(timeline.operations):
        who = ", ".join(sorted(elsewhere))
        facts.append(Fact("kernels-of-provider-missing", len(elsewhere), f"{who}: {_MISSING}"))
    source = Source(str(path), FORMAT, path.stat().st_size, recorder="onnxruntime")
    used = sorted(set(timeline.operations.columns.get("device", ())))
    return timeline.trace(source, [Device(number) for number in used], facts)


_MISSING = (
    "its kernels are not in the file, and the times of its nodes are those of giving them work"
    " (record the device: nsys profile, or a build with --enable_cuda_profiling)"
)


def _events(path: Path, text: bytes) -> Iterator[dict[str, Any]]:
    """Those of a list that was closed; a session that was never ended leaves it open."""
    try:
        listed = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        try:
            listed = msgspec.json.decode(text.rstrip().rstrip(b",") + b"]")
        except (msgspec.DecodeError, RecursionError) as error:
            raise UnreadableFile(
                f"{path}: cut off or broken JSON ({error})",
                hint="let the session end its profile: session.end_profiling()",
            ) from None
    return (event for event in listed if isinstance(event, dict) and event.get("ph") == "X")


def _add(timeline: Timeline, event: dict[str, Any], elsewhere: set[str]) -> None:
    said = event.get("args") or {}
    name, category = str(event.get("name", "")), event.get("cat")
    try:
        start, lasts = (round(float(event[key]) * 1000) for key in ("ts", "dur"))
    except (KeyError, TypeError, ValueError):
        timeline.unusable += 1
        return
    if category == "Kernel":
        stream = str(said.get("stream", ""))
        timeline.on_device(
            name, start, lasts, 0, stream=int(stream) if stream.isdecimal() else None
        )
        return
    thread = timeline.thread(event.get("pid"), event.get("tid"))
    if category == "Node" and name.endswith(_WORK):
        provider = said.get("provider")
        if isinstance(provider, str) and provider and provider not in _ON_THE_HOST:
            elsewhere.add(provider)
        operator = said.get("op_name") or name.removesuffix(_WORK)
        timeline.on_host(f"onnx::{operator}", start, lasts, thread, HostKind.OPERATOR)
    elif name.endswith(_EXECUTOR):  # its own time is that between nodes: no Python runs there
        timeline.on_host(f"onnxruntime::{name}", start, lasts, thread, HostKind.OPERATOR)
    elif category != "Node":  # what remains of nodes are fences, around the work
        timeline.on_host(name, start, lasts, thread, HostKind.ANNOTATION)
