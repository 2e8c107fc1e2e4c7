"""The Trace: frozen tables plus what is known about where they come from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from pinchpoint.hardware.ceilings import Ceilings
from pinchpoint.trace.profiled import ExpertNote, ProfiledLaunch, SummaryTable
from pinchpoint.trace.run_facts import RunFacts
from pinchpoint.trace.snapshot import MemorySnapshot
from pinchpoint.trace.table import Table

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Source:
    """Where a trace comes from."""

    path: str
    format: str  # the layout of the file, for people: kineto, nsys, xplane, run folder (kineto), …
    bytes: int | None = None  # size on disk
    truncated: bool = False
    recorder: str | None = None  # what wrote it: torch.profiler, nsys, ncu, jax, …; None: no sign
    recorder_version: str | None = None  # where the file says so
    producer: str | None = None  # the same for people: "torch 2.11.0"
    options: Mapping[str, Any] = field(default_factory=dict)  # with_stack, record_shapes, …


@dataclass(frozen=True)
class Thread:
    """A host thread. Ids stay text, because files use numbers and words for them."""

    process: str
    thread: str
    label: str | None = None


@dataclass(frozen=True)
class Device:
    """A device as the file describes it; None where it does not say."""

    number: int
    name: str | None = None
    memory_bytes: int | None = None
    multiprocessors: int | None = None
    compute_capability: tuple[int, int] | None = None
    vendor: str | None = None  # nvidia, amd, intel, meta, google
    clock_hz: float | None = None  # the highest of the processors
    memory_bytes_per_s: int | None = None  # of the memory's pins
    l2_bytes: int | None = None


@dataclass(frozen=True, eq=False)
class Trace:
    """One recording, in tables declared in ``tables.py``. Compared and hashed by identity.

    A table is None where the format or recording cannot have it (absent), has no rows where it
    could and nothing happened (empty), or is filled.
    """

    source: Source
    names: tuple[str, ...]
    threads: tuple[Thread, ...] = ()
    devices: tuple[Device, ...] = ()
    origin_ns: int | None = None  # Unix time of time zero, where known
    rank: int | None = None
    world_size: int | None = None
    collective_backend: str | None = None  # nccl, gloo, …: of the job's process group
    run: RunFacts | None = None
    ceilings: Ceilings | None = None  # measured on the device of the recording
    profiled_launches: tuple[ProfiledLaunch, ...] = ()  # in the order of kernel_counters' launch
    expert_notes: tuple[ExpertNote, ...] = ()  # of the profiler on those launches
    summaries: tuple[SummaryTable, ...] = ()
    host_ops: Table | None = None
    api_calls: Table | None = None
    device_ops: Table | None = None
    device_annotations: Table | None = None
    compiled_ops: Table | None = None
    flows: Table | None = None
    steps: Table | None = None
    counters: Table | None = None
    kernel_counters: Table | None = None
    allocations: Table | None = None
    snapshot: MemorySnapshot | None = None  # the allocator's own account
    health: Table | None = None

    def _repr_html_(self) -> str:
        """For notebooks."""
        from pinchpoint.trace import notebook

        return notebook.render(self)

    def text(self, table: Table, column: str, row: int) -> str | None:
        """The name that a ``names`` column holds at a row, or None where it is null."""
        position = table.value(column, row)
        return None if position is None else self.names[int(position)]


def once_per_trace(question: Callable[[Trace], Answer]) -> Callable[[Trace], Answer]:
    """Remember the answer of a pure function of a trace for as long as the trace lives."""
    remembered: WeakKeyDictionary[Trace, Answer] = WeakKeyDictionary()

    @wraps(question)
    def ask(trace: Trace) -> Answer:
        try:
            return remembered[trace]
        except KeyError:
            answer = remembered[trace] = question(trace)
            return answer

    return ask
