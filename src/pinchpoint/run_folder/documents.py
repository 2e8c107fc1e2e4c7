"""The JSON documents of a run folder, field by field. None: not known.

Every field has a default, so that folders of older versions are read; unknown fields are ignored,
so that folders of newer ones are. Hooks inside the user's program write ``ProcessDocument`` and
``WorkerDocument`` as plain JSON of the same shape.
"""

from typing import Annotated, Any

import msgspec

from pinchpoint.run_folder.layout import PROCESS_SCHEMA, SCHEMA

_FITS = 1 << 62  # beyond it sums of times do not fit into 64 bits
Ns = Annotated[int, msgspec.Meta(ge=0, lt=_FITS)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Bytes = Annotated[int, msgspec.Meta(ge=0, lt=_FITS)]
Signed = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all: frozen, fields by name."""


class RunDocument(Part, frozen=True, kw_only=True):
    """``run.json``: what was run and asked for, how it ended, what went wrong."""

    schema: str = SCHEMA
    status: str = ""  # running, ended
    command: tuple[str, ...] = ()
    working_directory: str | None = None
    asked: dict[str, Any] = msgspec.field(
        default_factory=dict
    )  # the options of the capture, for people
    written_utc: str | None = None
    started_unix_ns: Ns | None = None
    ended_unix_ns: Ns | None = None
    exit_code: Signed | None = None
    problems: tuple[str, ...] = ()
    recordings: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    no_devices: str | None = None  # why there are none
    not_sampled: dict[str, dict[str, str]] = msgspec.field(
        default_factory=dict
    )  # reasons by device ("host") and metric


class RecordingNote(Part, frozen=True, kw_only=True):
    """One recording of a process: a file, or the problem that prevented it."""

    file: str | None = None
    bytes: Bytes | None = None
    kernels: Count | None = None
    operators: Count | None = None
    problem: str | None = None
    start_unix_ns: Ns | None = None
    end_unix_ns: Ns | None = None
    steps: Count | None = None


class RunSteps(Part, frozen=True, kw_only=True):
    """All ordinary steps of the run, as the host saw them."""

    p50: Ns | None = None
    p90: Ns | None = None
    p95: Ns | None = None
    p99: Ns | None = None
    count: Count = 0
    total_ns: Ns = 0
    least: Ns | None = None
    most: Ns | None = None
    wait_total_ns: Ns = 0


class StepTimes(Part, frozen=True, kw_only=True):
    """The steps of a process: each unprofiled one around the recording, and the run in short."""

    by: str | None = None  # optimizer, loader, annotation, call
    count: Count = 0
    steady: bool | None = None
    clock: str = "host"  # or device
    before_ns: tuple[Ns, ...] = ()
    after_ns: tuple[Ns, ...] = ()
    wait_ns: tuple[Ns, ...] = ()  # for the batch of the same steps
    batches_per_step: float | None = None
    run: RunSteps = RunSteps()

    @property
    def unprofiled_ns(self) -> tuple[int, ...]:
        """Before and after the recording."""
        return self.before_ns + self.after_ns


class LoaderNote(Part, frozen=True, kw_only=True):
    """Settings of the loaders that are alike, and how often one was started."""

    num_workers: Any = None  # as the program gave it
    batch_size: Any = None
    prefetch_factor: Any = None
    pin_memory: Any = None
    persistent_workers: Any = None
    iterators: Count = 0
    start_ns: Ns = 0  # all of them together


class MemoryPeaks(Part, frozen=True, kw_only=True):
    """The most memory that a process held."""

    host_peak_bytes: Bytes | None = None
    torch_peak_allocated_bytes: Bytes | None = None
    torch_peak_reserved_bytes: Bytes | None = None


class ProcessDevice(Part, frozen=True, kw_only=True):
    """The device that a process used."""

    number: Count | None = None  # as the process counts them
    name: str | None = None
    uuid: str | None = None
    torch: str | None = None
    torch_reserved_bytes: Bytes | None = None


class Switches(Part, frozen=True, kw_only=True):
    """Of the framework's switches, those that are read again."""

    torch_num_threads: Count | None = None


class ProcessDocument(Part, frozen=True, kw_only=True):
    """``processes/rank….json``: what one process of the program saw of itself."""

    schema: str = PROCESS_SCHEMA
    rank: Count | None = None
    world_size: Count | None = None
    local_rank: Count | None = None
    host: str | None = None
    pid: Count | None = None
    stage: str | None = None
    steps: StepTimes = StepTimes()
    recordings: tuple[RecordingNote, ...] = ()
    triggers: tuple[str, ...] = ()  # why each recording was made
    problems: tuple[str, ...] = ()
    loaders: tuple[LoaderNote, ...] = ()
    memory: MemoryPeaks = MemoryPeaks()
    device: ProcessDevice | None = None
    switches: Switches = Switches()
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    cores_allowed: Count | None = None
    cpu_nodes: tuple[Signed, ...] | None = None
    python: str | None = None
    gc_collections: tuple[Bytes, ...] = ()

    @property
    def files(self) -> tuple[RecordingNote, ...]:
        """The recordings that came to be."""
        return tuple(r for r in self.recordings if r.file)


class WorkerDocument(Part, frozen=True, kw_only=True):
    """``loader/worker….json``: what one worker process of a data loader did."""

    pid: Count | None = None
    parent_pid: Count | None = None
    worker: Count | None = None  # its number
    workers: Count | None = None  # of its loader
    unix_ns: Ns | None = None
    batches: Count = 0
    busy_ns: Ns = 0
    cpu_ns: Ns = 0
    longest_ns: Ns = 0
    alive_ns: Ns = 0
    torch_threads: Count | None = None
    cores_allowed: Count | None = None


class GpuRecord(Part, frozen=True, kw_only=True):
    """Of the environment's record of a device, what is read again."""

    uuid: str | None = None
    numa_node: Signed | None = None
    power_limit_default_w: float | None = None


class GpuSection(Part, frozen=True, kw_only=True):
    """The devices of the machine."""

    count: Count | None = None
    devices: tuple[GpuRecord, ...] | None = None


class HostSection(Part, frozen=True, kw_only=True):
    """The machine around them."""

    cpus_logical: Count | None = None
    cgroup_cpu_max: str | None = None  # quota and period in µs: "200000 100000"


class VariablesSection(Part, frozen=True, kw_only=True):
    """Environment variables as the program was started."""

    values: dict[str, str] = msgspec.field(default_factory=dict)


class EnvironmentDocument(Part, frozen=True, kw_only=True):
    """``env.json``: of the environment record, what is read again."""

    gpu: GpuSection = GpuSection()
    host: HostSection = HostSection()
    variables: VariablesSection = VariablesSection()
