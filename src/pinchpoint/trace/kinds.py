"""The small closed vocabularies of the tables, stored as unsigned bytes."""

import re
from enum import IntEnum
from functools import lru_cache

from pinchpoint.regex import regex

# The category of a compiled operation that calls Python back, where its program says so.
HOST_CALLBACK = "host callback"
# The name of rows that were not recorded: a thread waits, which nothing but its silence shows.
UNRECORDED_WAIT = "wait in no recorded event"


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


# ------------------------------------------------------------------------------------------------
# What a runtime or driver call does, by its name: CUDA, HIP, oneAPI and MTIA spellings.


_VERSION = regex(
    r"(_v\d+)?(_ptsz|_ptds)?(_v\d+)?(R\d{4})?$"
)  # cudaLaunchKernel_v7000, cuMemcpyAsync_v2_ptsz, hipGetDevicePropertiesR0600
_PREFIX = regex(r"^(cuda|cu|hip|ze|ur|pi|runtimeFunction-|enqueueCommand )(?=[A-Zmw])")

# The first pattern that is found in the name without its prefix decides.
_PATTERNS: tuple[tuple[str, ApiKind], ...] = (
    (r"^GraphLaunch", ApiKind.GRAPH_LAUNCH),
    (r"^Graph|BeginCapture|EndCapture|ThreadExchangeStreamCaptureMode", ApiKind.GRAPH_BUILD),
    (r"IsCapturing|GetCaptureInfo|Query|^Get|GetAttribute|GetLastError|PeekAt|^Occupancy|^Func[GS]et"
     r"|DeviceGet|PointerGet|CtxGet|StreamGet|MemGet|MemPool[GS]et", ApiKind.QUERY),
    (r"^Launch|LaunchKernel|Enqueue(Cooperative)?Kernel|ExtLaunch|ModuleLaunch|CooperativeLaunch"
     r"|LaunchCooperative|AppendLaunch|^runFunction", ApiKind.LAUNCH),
    (r"^DeviceSynchronize|^CtxSynchronize|^ThreadSynchronize|^synchronize$", ApiKind.SYNC_DEVICE),
    (r"^StreamSynchronize|QueueFinish|CommandQueueSynchronize|CommandListHostSynchronize"
     r"|StreamWait$|^synchronizeStream", ApiKind.SYNC_STREAM),
    (r"^EventSynchronize|EventWait$|EventHostSynchronize|FenceHostSynchronize", ApiKind.SYNC_EVENT),
    (r"^StreamWaitEvent|StreamWaitValue|EnqueueEventsWait|AppendWaitOnEvents|^waitOnEvent",
     ApiKind.STREAM_WAIT),
    (r"^EventRecord|^recordEvent", ApiKind.EVENT_RECORD),
    (r"[Mm]emset|EnqueueUSMFill|EnqueueMemBufferFill|AppendMemoryFill", ApiKind.MEMSET),
    (r"[Mm]emcpy|MemPrefetch|EnqueueUSMMemcpy|EnqueueMemBuffer(Read|Write|Copy)|AppendMemoryCopy",
     ApiKind.COPY),
    (r"HostAlloc|MallocHost|HostMalloc|HostRegister|MemAllocHost|USMHostAlloc", ApiKind.HOST_ALLOC),
    (r"FreeHost|HostFree|HostUnregister", ApiKind.OTHER),
    # In order with the work of a stream: the host waits for nothing.
    (r"^(Malloc|Free|MemAlloc|MemFree)(FromPool)?Async", ApiKind.OTHER),
    (r"^Malloc|^MemAlloc|^MemCreate|^MemMap$|^MemAllocDevice|^ExtMalloc|USMDeviceAlloc",
     ApiKind.MALLOC),
    (r"^Free|^MemFree|^MemRelease|^MemUnmap|USMFree", ApiKind.FREE),
    (r"^Module(Load|Unload|GetFunction|Create)|^Library(Load|GetKernel)|ProgramCreate",
     ApiKind.MODULE_LOAD),
)  # fmt: skip
_COMPILED = tuple((regex(pattern), kind) for pattern, kind in _PATTERNS)


def without_version(name: str) -> str:
    """The call's name without the API version that CUPTI appends."""
    return _VERSION.sub("", name)


@lru_cache(maxsize=1 << 14)  # names are few beside events
def api_kind(name: str) -> ApiKind:
    """What a call of this name does."""
    bare = _PREFIX.sub("", without_version(name))
    for pattern, kind in _COMPILED:
        if pattern.search(bare):
            return kind
    return ApiKind.OTHER


_COLLECTIVES = (
    ("allreduce", "allreduce"),
    ("reduce_scatter_cross_device", "reduce_scatter"),
    ("cross_device_reduce", "allreduce"),
    ("quick_reduce", "allreduce"),
    ("reducescatter", "reduce_scatter"),
    ("allgather", "allgather"),
    ("alltoall", "alltoall"),
    ("all_to_all", "alltoall"),
    ("broadcast", "broadcast"),
    ("sendrecv", "sendrecv"),
    ("collectivepermute", "sendrecv"),
    ("reduce", "reduce"),
    ("send", "send"),
    ("recv", "recv"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("barrier", "barrier"),
    ("mc_rs", "reduce_scatter"),  # Transformer Engine's userbuffers
    ("mc_ag", "allgather"),
    ("rr_ag", "allgather"),
    ("sum_inplace", "allreduce"),
    ("dispatch", "dispatch"),  # DeepEP: tokens to their experts, and back
    ("combine", "combine"),
)
_LIBRARY = regex(
    r"nccl(dev)?kernel|^ncclkernel|^nccl(all|broadcast|reduce)\w+kernel_|"  # the last: 2020
    r"rccl|hccl|oneccl|^ccl_|msccl|nvshmem|deep_?ep|\b(inter|intra)node(_ll)?::"  # DeepEP, moved
    r"|cross_device_reduce_|multimem_(all|one)_|(one|two)_?shot_?all_?|custom_?all_?reduce"
    r"|all_?reduce_(fusion|kernel)|trtllm_allreduce|quick_?reduce|reduce_scatter_cross_device"
    r"|allgather_lastdim|userbuffers"
    r"|^(all-(reduce|gather|to-all)|reduce-scatter|collective-(permute|broadcast))\b",  # of XLA
    re.IGNORECASE,
)


@lru_cache(maxsize=1 << 14)  # names are few beside events
def collective_kind(kernel: str) -> str | None:
    """Which collective a device kernel carries out (``allreduce``, …), or None if it is none.

    Kernels of a collective library whose name tells no more (``ncclDevKernel_Generic``) give
    ``"other"``.
    """
    if _LIBRARY.search(kernel) is None:
        return None
    return collective_verb(kernel)


@lru_cache(maxsize=1 << 14)  # names are few beside events
def collective_verb(name: str) -> str:
    """``allreduce``, … in the name of a collective or its kernel, else ``"other"``."""
    bare = name.lower().replace("_", "").replace("-", "")
    for word, kind in _COLLECTIVES:
        if word.replace("_", "") in bare:
            return kind
    return "other"
