"""What a run folder knows besides the recording, as far as the analyses read it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pinchpoint.trace.trace import Trace


@dataclass(frozen=True)
class LoaderWorker:
    """What one worker process of a data loader did. None: not noted."""

    workers: int | None = None  # of its loader
    busy_ns: int = 0  # making batches
    alive_ns: int = 0  # from its first batch to its last note
    torch_threads: int | None = None


@dataclass(frozen=True)
class DeviceSetting:
    """How the device that the process used is set up and placed. None: not known."""

    power_limit_default_w: float | None = None
    numa_node: int | None = None


@dataclass(frozen=True)
class RunFacts:
    """What a run folder knows besides the trace. None: not recorded."""

    unprofiled_step_ns: tuple[int, ...] = ()  # steps timed in the same run with only hooks on
    data_wait_ns: tuple[int, ...] = ()  # wait for the batch in those steps
    command: tuple[str, ...] = ()
    working_directory: str | None = None  # that the program was started in
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    cores_allowed: float | None = None  # affinity of the process, cut by its control group
    cores_there: int | None = None  # of the machine
    cpu_nodes: tuple[int, ...] | None = None  # memory nodes of the cores of the process
    torch_threads: int | None = None  # of one operator, in the process itself
    loader_workers: tuple[LoaderWorker, ...] = ()
    device: DeviceSetting | None = None  # the one that the process used
    devices: int | None = None  # of the machine
    processes: int | None = None  # of the program, that recorded or timed steps
    named: "Trace | None" = None  # the window with stacks, shapes and modules, beside a bare one
    memory: "Trace | None" = None  # the allocator's snapshot of the same process
    documents: Mapping[str, Any] = field(  # as they were read, for display alone
        default_factory=lambda: MappingProxyType({})
    )
