"""The Trace: frozen tables plus what is known about where they come from."""

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from pinchpoint.frozen import dataclass
from pinchpoint.hardware.ceilings import Ceilings
from pinchpoint.trace.run_samples import RunSamples
from pinchpoint.trace.run_values import RunValues
from pinchpoint.trace.snapshot import MemorySnapshot
from pinchpoint.trace.table import Table

if TYPE_CHECKING:
    pass

# ------------------------------------------------------------------------------------------------
# What a run folder knows besides the recording, as far as the analyses read it.


@dataclass(frozen=True)
class LoaderWorker:
    """What one worker process of a data loader did. None: not noted."""

    workers: int | None = None  # of its loader
    busy_ns: int = 0  # making batches
    alive_ns: int = 0  # from its first batch to its last note
    torch_threads: int | None = None
    # File, line and name of the function that makes a batch of samples.
    collate: tuple[str, int, str] | None = None
    batch_bytes: int | None = None  # of all its batches
    read_bytes: int | None = None  # that it asked files for meanwhile
    batches: int = 0
    # Of one batch of a dataset with an iterator: file, first line and name of functions that ran at
    # least once for each of its samples, and how many times.
    counted_samples: int = 0
    calls: tuple[tuple[str, int, str, int], ...] = ()


@dataclass(frozen=True)
class DeviceSetting:
    """How the device that the process used is set up and placed. None: not known."""

    power_limit_default_w: float | None = None
    numa_node: int | None = None


@dataclass(frozen=True)
class RunCourse:
    """How the time of a run that has ended passed, as far as its process noted. None: not known."""

    total_ns: int  # from the start of the program to its end
    before_ns: int | None = None  # of it until the third step began; the first two are cold
    loader_starts: int = 0  # iterators of loaders with worker processes that were made
    loader_workers: int = 0  # of the largest of these loaders
    loader_start_ns: int = 0  # in making them
    counted: int | None = None  # steps from the third on, where only the first of them were timed
    counted_ns: int = 0  # from the third on to the end, less what recording took


@dataclass(frozen=True)
class NodeShares:
    """Of a process on a machine with several memory nodes, after a recording of it."""

    memory: Mapping[int, float]  # share of its memory by node
    time: Mapping[int, float]  # share of its threads' CPU time, by the node each ran on last
    pinned_ratio: float  # of that time, of threads that may run on one node only
    local_ratio: float  # distance of a node to itself by that to the farthest other one


@dataclass(frozen=True)
class BothBranches:
    """A condition of which ``jax.vmap`` made a choice: all of its branches are computed."""

    place: tuple[str, int, str]  # file, line, function
    lines: tuple[str, ...]  # file:line of what is in the branches


@dataclass(frozen=True)
class Jacobian:
    """A Jacobian that the program takes in reverse mode: a pass back for each number that comes
    out."""

    place: tuple[str, int, str]  # file, line, function
    outputs: int  # numbers that come out of the function, of one row
    inputs: int  # that go in


@dataclass(frozen=True)
class CompiledCalls:
    """A place of the program that calls a function which JAX has compiled, on the host's clock."""

    place: tuple[str, int, str]  # file, line, function
    function: str  # that it calls
    inside: int  # calls in the recording
    inside_mean_ns: int  # from one of these to the next
    inside_median_ns: int
    before_ns: tuple[int, ...]  # each interval before the recording, with only hooks on
    after_ns: tuple[int, ...]
    step_ns: tuple[int, ...]  # both, as they stand for the run


@dataclass(frozen=True)
class ThreadDeath:
    """A thread of the program that an exception ended, while the program went on."""

    thread: str
    said: str  # ``ValueError: shapes do not match``
    place: tuple[str, int, str] | None  # file, line, function
    after_ns: int  # since the process began to be watched


@dataclass(frozen=True)
class LaunchTimes:
    """Host time of one small launch in the process, before the profiler first ran and after."""

    before_ns: int
    after_ns: int
    unloaded_steps: int = 0  # of the timed ones, those that came before the profiler first ran

    @property
    def more_ns(self) -> int:
        """What each costs more since."""
        return max(self.after_ns - self.before_ns, 0)


@dataclass(frozen=True)
class RunFacts:
    """What a run folder knows besides the trace. None: not recorded."""

    unprofiled_step_ns: tuple[int, ...] = ()  # steps timed in the same run with only hooks on
    # Middle one as it was timed, and how many steps the run had besides: where those timed beside
    # the recording were quicker than these, and count as long. None: they count as they were timed.
    quicker_than_run: tuple[int, int] | None = None
    # Of a program whose steps no hook saw; analysis.steps.timed finds those that are its steps.
    calls: tuple[CompiledCalls, ...] = ()
    # File, line and function whose turns or calls are the steps, where nothing marks them.
    turns_at: tuple[str, int, str] | None = None
    python: str | None = None  # its version, of the process
    launch: LaunchTimes | None = None  # None: not measured
    data_wait_ns: tuple[int, ...] = ()  # wait for the batch in those steps
    command: tuple[str, ...] = ()
    working_directory: str | None = None  # that the program was started in
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    cores_allowed: float | None = None  # affinity of the process, cut by its control group
    cores_there: int | None = None  # of the machine
    cores_of_others: float | None = None  # that other programs used meanwhile, on average
    disturbed: tuple[str, ...] = ()  # what others did that makes steps longer, in sentences
    cpu_nodes: tuple[int, ...] | None = None  # memory nodes of the cores of the process
    node_shares: NodeShares | None = None  # None: one memory node, or not recorded
    torch_threads: int | None = None  # of one operator, in the process itself
    onednn: bool | None = None  # torch.backends.mkldnn.enabled
    cpu_features: tuple[str, ...] | None = None  # of those that change how fast products are
    both_branches: tuple[BothBranches, ...] = ()
    jacobians: tuple[Jacobian, ...] = ()
    live_arrays: Mapping[tuple[str, tuple[int, ...]], int] | None = None  # of JAX, by their type
    deaths: tuple[ThreadDeath, ...] = ()  # the first ones, in order
    deaths_count: int = 0
    line_tracer: str | None = None  # a debugger, coverage tool or function told of every line
    page_faults_per_step: float | None = None  # of the process, outside of recordings
    kernel_ns_per_step: float | None = None  # time of its threads in the kernel, the same steps
    user_ns_per_step: float | None = None  # and outside of it
    loader_workers: tuple[LoaderWorker, ...] = ()
    workers_ns_per_step: float | None = None  # of all of them on cores, for the batches of a step
    device: DeviceSetting | None = None  # the one that the process used
    devices: int | None = None  # of the machine
    processes: int | None = None  # of the program, that recorded or timed steps
    named: "Trace | None" = None  # the window with stacks, shapes and modules, beside a bare one
    late: "Trace | None" = None  # such a window of steps that had become longer than those by then
    course: RunCourse | None = None
    samples: RunSamples | None = None  # of the same process over the whole run
    values: RunValues | None = None  # of one step's batches and attention masks
    rare: "Trace | None" = None  # the window of a far step that was foreseen, with usual ones
    rare_recording: str | None = None  # file with a far step that was foreseen, in the run folder
    memory: "Trace | None" = None  # the allocator's snapshot of the same process
    documents: Mapping[str, Any] = field(  # as they were read, for display alone
        default_factory=lambda: MappingProxyType({})
    )


# ------------------------------------------------------------------------------------------------
# What a kernel profiler (ncu) or a summary (nsys stats) says besides numbers in tables.


Size = tuple[int, int, int]


@dataclass(frozen=True)
class ProfiledLaunch:
    """One launch that was profiled; its position is ``launch`` in ``kernel_counters``."""

    name: str
    grid: Size | None = None
    block: Size | None = None
    context: int | None = None
    stream: int | None = None
    device: int = 0
    texts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # word metrics


@dataclass(frozen=True)
class ExpertNote:
    """What one of NVIDIA's own rules said about a profiled launch."""

    launch: int  # position in ``Trace.profiled_launches``
    rule: str  # SOLBottleneck, CPIStall, …
    section: str
    kind: str  # OPT an opportunity, WRN, INF, ERR
    text: str
    speedup_kind: str | None = None  # global: of the kernel's time; local: of one unit
    speedup_percent: float | None = None


@dataclass(frozen=True)
class SummaryTable:
    """Totals by name as a tool printed them, without times of single events."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""  # whose, where the file has several


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
    first_ns: int | None = None  # of a file of which a part was read: when its first event began


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
class GraphCapture:
    """What was captured into a graph in another recording of the same program, in order."""

    kinds: Any  # DeviceKind that each launch starts
    operators: Any  # around each launch, rows of ``Trace.captured_ops``; its length for none


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
    captures: tuple[GraphCapture, ...] = ()  # of other recordings: what replays here come from
    captured_ops: Table | None = None  # as host_ops, of those recordings
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
    only_steps: tuple[int, ...] | None = None  # positions of those that are asked about; None: all

    def _repr_html_(self) -> str:
        """For notebooks."""
        return _in_notebook(self)

    @property
    def with_names(self) -> "Trace":
        """The window of the same run that has stacks, shapes and modules; else itself."""
        named = self.run.named if self.run else None
        return self if named is None else named

    def text(self, table: Table, column: str, row: int) -> str | None:
        """The name that a ``names`` column holds at a row, or None where it is null."""
        position = table.value(column, row)
        return None if position is None else self.names[int(position)]


def once_per_trace(question: Callable[[Trace], Answer]) -> Callable[[Trace], Answer]:
    """Remember the answer of a pure function of a trace for as long as the trace lives.

    An answer must not hold its trace, which would then live for ever; it may be the trace itself.
    """
    remembered: WeakKeyDictionary[Trace, Answer] = WeakKeyDictionary()
    itself: WeakSet[Trace] = WeakSet()

    @wraps(question)
    def ask(trace: Trace) -> Answer:
        try:
            return remembered[trace]
        except KeyError:
            if trace in itself:
                return trace  # type: ignore[return-value]
            answer = question(trace)
            if answer is trace:
                itself.add(trace)
            else:
                remembered[trace] = answer
            return answer

    return ask


# ------------------------------------------------------------------------------------------------
# A trace in a notebook: where it is from, and how many rows its tables have.


LONGEST = 200  # characters of a text from the file; more breaks the layout and says no more
MOST_DEVICES = 8  # as many as a host usually has


def _in_notebook(trace: Trace) -> str:
    """A small table as HTML; every text from the file is one escaped, printable line."""
    facts = {
        "recording": trace.source.path,
        "format": trace.source.format,
        "from": trace.source.producer,
        "devices": ", ".join(d.name or f"device {d.number}" for d in trace.devices[:MOST_DEVICES]),
        "rank": None if trace.rank is None else f"{trace.rank} of {trace.world_size or 'unknown'}",
    }
    rows = [(what, value) for what, value in facts.items() if value]
    tables = {name: value for name, value in vars(trace).items() if isinstance(value, Table)}
    rows += [(name, f"{len(table):,} rows") for name, table in tables.items()]
    cells = "".join(f"<tr><th>{what}</th><td>{_safe(value)}</td></tr>" for what, value in rows)
    return f"<table>{cells}</table>"


def _safe(text: str) -> str:
    from html import escape

    cut = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return escape("".join(c if c.isprintable() else "\ufffd" for c in cut))
