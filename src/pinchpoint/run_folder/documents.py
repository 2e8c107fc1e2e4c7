"""The JSON documents of a run folder, field by field. None: not known.

Every field has a default, so that folders of older versions are read; unknown fields are ignored,
so that folders of newer ones are. Hooks inside the user's program write ``ProcessDocument`` and
``WorkerDocument`` as plain JSON of the same shape.
"""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from pinchpoint.errors import UnreadableFile
from pinchpoint.frozen import dataclass
from pinchpoint.json_text import indented
from pinchpoint.replacing import replacing, too_deep
from pinchpoint.run_folder.layout import PROCESS_SCHEMA, SCHEMA
from pinchpoint.run_folder.numbers import Bytes, Count, Ns, Signed
from pinchpoint.run_folder.step_times import StepTimes


class RunDocument(msgspec.Struct, frozen=True, kw_only=True):
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


class RecordingNote(msgspec.Struct, frozen=True, kw_only=True):
    """One recording of a process: a file, or the problem that prevented it."""

    file: str | None = None
    bytes: Bytes | None = None
    kernels: Count | None = None
    operators: Count | None = None
    problem: str | None = None
    start_unix_ns: Ns | None = None
    end_unix_ns: Ns | None = None
    steps: Count | None = None
    window: str = "times"  # or names: with stacks, shapes and modules; early: names, first steps


class LoaderNote(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the loaders that are alike, and how often one was started."""

    num_workers: Any = None  # as the program gave it
    batch_size: Any = None
    prefetch_factor: Any = None
    pin_memory: Any = None
    persistent_workers: Any = None
    iterators: Count = 0
    start_ns: Ns = 0  # all of them together


class BranchesNote(msgspec.Struct, frozen=True, kw_only=True):
    """A condition of which ``jax.vmap`` made a choice among the results of its branches."""

    place: tuple[str, Count, str] = ("", 0, "")  # file, line, function
    lines: tuple[tuple[str, Count], ...] = ()  # of what is in its branches


class JacobianNote(msgspec.Struct, frozen=True, kw_only=True):
    """A Jacobian that is taken in reverse mode (``jax.jacrev``)."""

    place: tuple[str, Count, str] = ("", 0, "")  # file, line, function
    outputs: Count = 0  # numbers that come out of the function, of one row
    inputs: Count = 0  # that go in


class LiveArraysNote(msgspec.Struct, frozen=True, kw_only=True):
    """Arrays of one type and shape that JAX held while steps were recorded."""

    dtype: str = ""
    shape: tuple[Count, ...] = ()
    count: Count = 0


class CallsNote(msgspec.Struct, frozen=True, kw_only=True):
    """A place that calls a function which JAX has compiled: how often in the recording, in which
    intervals, and in which ones around it. Where the calls are the steps, these are, too."""

    place: tuple[str, Count, str] = ("", 0, "")  # file, line, function
    called: str = ""
    inside: Count = 0
    inside_mean_ns: Ns = 0
    inside_median_ns: Ns = 0
    steps: StepTimes = StepTimes()


class ThreadedNote(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of a function of the program in threads beside the main one: requests of a server, jobs
    of a pool. They overlap; those that a recording held up are left out of all but their number."""

    place: tuple[str, Count, str] = ("", 0, "")  # file, line, function
    calls: Count = 0
    threads: Count = 0
    per_s: float = 0.0
    at_once: float = 0.0  # under way, on average
    median_ns: Ns = 0
    p95_ns: Ns = 0


class DeathNote(msgspec.Struct, frozen=True, kw_only=True):
    """A thread of the program that an exception ended."""

    thread: str = ""
    said: str = ""  # the exception with the first line of its text
    place: tuple[str, Count, str] | None = None  # file, line, function: the innermost of its own
    after_ns: Ns = 0  # since the hooks were put on


class MemoryPeaks(msgspec.Struct, frozen=True, kw_only=True):
    """The most memory that a process held."""

    host_peak_bytes: Bytes | None = None
    torch_peak_allocated_bytes: Bytes | None = None
    torch_peak_reserved_bytes: Bytes | None = None


class ProcessDevice(msgspec.Struct, frozen=True, kw_only=True):
    """The device that a process used."""

    number: Count | None = None  # as the process counts them
    name: str | None = None
    uuid: str | None = None
    torch: str | None = None
    torch_reserved_bytes: Bytes | None = None


class Switches(msgspec.Struct, frozen=True, kw_only=True):
    """Of the framework's switches, those that are read again."""

    torch_num_threads: Count | None = None
    onednn: bool | None = None


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where memory and threads of a process were, on a machine with several memory nodes."""

    bytes: dict[str, Bytes] = msgspec.field(default_factory=dict)  # by node, of no file
    cpu_ticks: dict[str, Bytes] = msgspec.field(default_factory=dict)  # by node a thread ran on
    pinned_ticks: Bytes = 0  # of threads that may run on one node only
    distances: tuple[tuple[Count, ...], ...] = ()  # of each node to all; 10 is its own


class ProcessDocument(msgspec.Struct, frozen=True, kw_only=True):
    """``processes/rank….json``: what one process of the program saw of itself."""

    schema: str = PROCESS_SCHEMA
    rank: Count | None = None
    world_size: Count | None = None
    local_rank: Count | None = None
    host: str | None = None
    pid: Count | None = None
    stage: str | None = None
    complete: bool = True  # False: it did not live to write its last figures
    steps: StepTimes = StepTimes()
    calls: tuple[CallsNote, ...] = ()  # where no hook saw steps; least often called first
    threaded: ThreadedNote | None = None  # where no hook saw steps
    recordings: tuple[RecordingNote, ...] = ()
    triggers: tuple[str, ...] = ()  # why each recording was made
    problems: tuple[str, ...] = ()
    threads_died: tuple[DeathNote, ...] = ()  # the first ones, in order
    threads_died_count: Count = 0
    loaders: tuple[LoaderNote, ...] = ()
    memory: MemoryPeaks = MemoryPeaks()
    device: ProcessDevice | None = None
    switches: Switches = Switches()
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    cores_allowed: Count | None = None
    cpu_nodes: tuple[Signed, ...] | None = None
    placement: Placement | None = None  # None: one node, or not known
    both_branches: tuple[BranchesNote, ...] = ()
    jacobians: tuple[JacobianNote, ...] = ()
    live_arrays: tuple[LiveArraysNote, ...] = ()
    line_tracer: str | None = None  # what every line of the step's thread was reported to
    python: str | None = None
    gc_collections: tuple[Bytes, ...] = ()

    @property
    def files(self) -> tuple[RecordingNote, ...]:
        """The recordings that came to be, those for names alone left out."""
        beside = ("names", "rare", "late")
        return tuple(r for r in self.recordings if r.file and r.window not in beside)

    @property
    def rare(self) -> RecordingNote | None:
        """The newest recording of a step far from typical that was foreseen."""
        found = [r for r in self.recordings if r.file and r.window == "rare"]
        return found[-1] if found else None

    @property
    def late(self) -> RecordingNote | None:
        """The newest recording of steps that had become longer in the course of the run."""
        found = [r for r in self.recordings if r.file and r.window == "late"]
        return found[-1] if found else None

    @property
    def named(self) -> RecordingNote | None:
        """The newest recording for names that came to be."""
        found = [r for r in self.recordings if r.file and r.window == "names"]
        return found[-1] if found else None


class StreamNote(msgspec.Struct, frozen=True, kw_only=True):
    """Of a worker's document: how often functions ran for one batch of a dataset that iterates."""

    samples: Count = 0  # of that batch
    calls: tuple[tuple[str, Count, str, Count], ...] = ()  # file, first line, function; calls


class WorkerDocument(msgspec.Struct, frozen=True, kw_only=True):
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
    collate: tuple[str, Count, str] | None = None  # the function that makes a batch of samples
    batch_bytes: Bytes | None = None  # of all batches
    read_bytes: Bytes | None = None  # that it asked files for meanwhile
    stream: StreamNote | None = None


class GpuRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Of the environment's record of a device, what is read again."""

    uuid: str | None = None
    numa_node: Signed | None = None
    power_limit_default_w: float | None = None


class GpuSection(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of the machine."""

    count: Count | None = None
    devices: tuple[GpuRecord, ...] | None = None


class HostSection(msgspec.Struct, frozen=True, kw_only=True):
    """The machine around them."""

    cpus_logical: Count | None = None
    cgroup_cpu_max: str | None = None  # quota and period in µs: "200000 100000"
    cpu_features: tuple[str, ...] | None = None  # of those that change how fast products are


class VariablesSection(msgspec.Struct, frozen=True, kw_only=True):
    """Environment variables as the program was started."""

    values: dict[str, str] = msgspec.field(default_factory=dict)


class EnvironmentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """``env.json``: of the environment record, what is read again."""

    gpu: GpuSection = GpuSection()
    host: HostSection = HostSection()
    variables: VariablesSection = VariablesSection()


# ------------------------------------------------------------------------------------------------
# Writes and reads the JSON documents of a run folder.
#
# Folders come from other versions, from disks that were full and from strangers. A document that
# is no JSON is refused; a field that has the wrong type is left out, with one sentence that says
# so.


_LARGEST_DOCUMENT_BYTES = 32 << 20  # a run of a week with thousands of steps has a tenth of it

Document = TypeVar("Document", bound=msgspec.Struct)


@dataclass(frozen=True)
class ReadDocument(Generic[Document]):
    """A document, the text that it was made from as plain data, and what is wrong with it."""

    document: Document
    plain: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def write(path: Path, document: msgspec.Struct) -> None:
    """Write the whole document or nothing: a reader never sees half of it. Raises OSError."""
    with replacing(path) as beside:
        beside.write_bytes(indented(document))


def read(path: Path, kind: type[Document]) -> ReadDocument[Document]:
    """The document; UnreadableFile if the file is missing, too large, or no JSON object."""
    plain = _plain(path)
    try:
        return ReadDocument(msgspec.convert(plain, kind), plain)
    except msgspec.ValidationError:
        return _without_wrong_fields(path, plain, kind)


def read_if_there(path: Path, kind: type[Document]) -> ReadDocument[Document]:
    """The same, but all defaults where there is no such file."""
    return read(path, kind) if path.exists() else ReadDocument(kind())


def _plain(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():
            raise UnreadableFile(f"{path}: a folder, pipe or device", hint="copy it again")
        if path.stat().st_size > _LARGEST_DOCUMENT_BYTES:
            raise UnreadableFile(f"{path}: far too large for what it should hold")
        found = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        raise UnreadableFile(f"{path}: no such file", hint="copy the whole run folder") from None
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror or error}", hint="check it") from None
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        raise UnreadableFile(f"{path}: no JSON, or cut off", hint="copy it again") from None
    if not isinstance(found, dict) or too_deep(found):
        raise UnreadableFile(f"{path}: not the document that it should be", hint="copy it again")
    return found


def _without_wrong_fields(
    path: Path, plain: Mapping[str, Any], kind: type[Document]
) -> ReadDocument[Document]:
    kept, problems = {}, []
    for one in msgspec.structs.fields(kind):
        if one.name not in plain:
            continue
        try:
            kept[one.name] = msgspec.convert(plain[one.name], one.type)
        except msgspec.ValidationError as error:
            problems.append(f"{path.name}: {one.name} was left out: {error}")
    return ReadDocument(kind(**kept), plain, tuple(problems))
