"""The small closed vocabularies of the tables, stored as unsigned bytes."""

from enum import IntEnum


class HostKind(IntEnum):
    """What a row of ``host_ops`` is."""

    OPERATOR = 1  # a framework operator: aten::mm, an autograd node, a custom op
    PYTHON = 2  # a Python function or C function called from Python
    MODULE = 3  # the call of an nn.Module instance, seen as a Python event
    ANNOTATION = 4  # record_function, NVTX or TraceAnnotation range named by a person or framework
    COMPILE = 5  # work of a compiler: dynamo, inductor, triton, XLA
    OVERHEAD = 6  # the profiler's own work, as it reports it
    OS_CALL = 7  # an operating-system call or CPU sample (nsys)


class ApiKind(IntEnum):
    """What a runtime or driver call does to the device."""

    LAUNCH = 1  # one kernel
    GRAPH_LAUNCH = 2  # a recorded graph of many operations
    COPY = 3
    MEMSET = 4
    SYNC_DEVICE = 5  # waits for all work of the device
    SYNC_STREAM = 6  # waits for one stream
    SYNC_EVENT = 7  # waits for one event
    EVENT_RECORD = 8
    STREAM_WAIT = 9  # makes a stream wait for an event; the host goes on
    MALLOC = 10  # asks the driver for device memory
    FREE = 11  # gives device memory back to the driver; implies a device synchronisation
    HOST_ALLOC = 12  # page-locked host memory
    QUERY = 13  # asks a state without waiting: events, attributes, occupancy
    GRAPH_BUILD = 14  # capture, instantiation, update of a graph
    MODULE_LOAD = 15  # loads device code
    OTHER = 16


class DeviceKind(IntEnum):
    """What a row of ``device_ops`` is."""

    KERNEL = 1
    COPY = 2
    MEMSET = 3
    COLLECTIVE = 4  # a kernel of NCCL, RCCL, HCCL, oneCCL or a custom all-reduce


class MemoryKind(IntEnum):
    """Where one end of a copy lives."""

    DEVICE = 1
    PINNED = 2  # page-locked host memory
    PAGEABLE = 3  # ordinary host memory
    HOST = 4  # host memory; the file does not say which kind
    UNIFIED = 5  # managed memory
    ARRAY = 6  # texture array
    PEER = 7  # memory of another device


class FlowKind(IntEnum):
    """What an edge of ``flows`` connects."""

    FORWARD_BACKWARD = 1  # a forward operator -> its backward node, both on the host
    EVENT_WAIT = 2  # cudaEventRecord -> the wait that depends on it
    DEVICE_SYNC = 3  # a synchronisation interval as seen on the device side
    OTHER = 4


class Severity(IntEnum):
    """How much a health fact matters."""

    NOTE = 1  # worth knowing, changes nothing
    WARNING = 2  # some answers are weaker
    FATAL = 3  # forbids conclusions about time
