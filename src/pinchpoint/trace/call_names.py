"""What a runtime or driver call does, by its name: CUDA, HIP, oneAPI and MTIA spellings."""

import re
from functools import cache

from pinchpoint.trace.kinds import ApiKind

_VERSION = re.compile(
    r"(_v\d+)?(_ptsz|_ptds)?(_v\d+)?$"
)  # cudaLaunchKernel_v7000, cuMemcpyAsync_v2_ptsz
_PREFIX = re.compile(r"^(cuda|cu|hip|ze|ur|pi|runtimeFunction-)(?=[A-Z])")

# The first pattern that is found in the name without its prefix decides.
_PATTERNS: tuple[tuple[str, ApiKind], ...] = (
    (r"^GraphLaunch", ApiKind.GRAPH_LAUNCH),
    (r"^Graph|BeginCapture|EndCapture|ThreadExchangeStreamCaptureMode", ApiKind.GRAPH_BUILD),
    (r"IsCapturing|GetCaptureInfo|Query|^Get|GetAttribute|GetLastError|PeekAt|^Occupancy|^Func[GS]et"
     r"|DeviceGet|PointerGet|CtxGet|StreamGet|MemGet|MemPool[GS]et", ApiKind.QUERY),
    (r"^Launch|LaunchKernel|EnqueueKernel|ExtLaunch|ModuleLaunch|CooperativeLaunch|LaunchCooperative",
     ApiKind.LAUNCH),
    (r"^DeviceSynchronize|^CtxSynchronize|^ThreadSynchronize", ApiKind.SYNC_DEVICE),
    (r"^StreamSynchronize|QueueFinish|CommandQueueSynchronize|StreamWait$", ApiKind.SYNC_STREAM),
    (r"^EventSynchronize|EventWait$|EventHostSynchronize|FenceHostSynchronize", ApiKind.SYNC_EVENT),
    (r"^StreamWaitEvent|StreamWaitValue|EnqueueEventsWait", ApiKind.STREAM_WAIT),
    (r"^EventRecord", ApiKind.EVENT_RECORD),
    (r"[Mm]emset|EnqueueUSMFill|EnqueueMemBufferFill", ApiKind.MEMSET),
    (r"[Mm]emcpy|MemPrefetch|EnqueueUSMMemcpy|EnqueueMemBuffer(Read|Write|Copy)|AppendMemoryCopy",
     ApiKind.COPY),
    (r"HostAlloc|MallocHost|HostMalloc|HostRegister|MemAllocHost|USMHostAlloc", ApiKind.HOST_ALLOC),
    (r"FreeHost|HostFree|HostUnregister", ApiKind.OTHER),
    (r"^Malloc|^MemAlloc|^MemCreate|^ExtMalloc|USMDeviceAlloc", ApiKind.MALLOC),
    (r"^Free|^MemFree|^MemRelease|USMFree", ApiKind.FREE),
    (r"^Module(Load|Unload|GetFunction)|^Library(Load|GetKernel)", ApiKind.MODULE_LOAD),
)  # fmt: skip
_COMPILED = tuple((re.compile(pattern), kind) for pattern, kind in _PATTERNS)


def without_version(name: str) -> str:
    """The call's name without the API version that CUPTI appends."""
    return _VERSION.sub("", name)


@cache
def api_kind(name: str) -> ApiKind:
    """What a call of this name does."""
    bare = _PREFIX.sub("", without_version(name))
    for pattern, kind in _COMPILED:
        if pattern.search(bare):
            return kind
    return ApiKind.OTHER


_COLLECTIVES = (
    ("allreduce", "allreduce"),
    ("cross_device_reduce", "allreduce"),
    ("reducescatter", "reduce_scatter"),
    ("allgather", "allgather"),
    ("alltoall", "alltoall"),
    ("all_to_all", "alltoall"),
    ("broadcast", "broadcast"),
    ("sendrecv", "sendrecv"),
    ("reduce", "reduce"),
    ("send", "send"),
    ("recv", "recv"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("barrier", "barrier"),
)
_LIBRARY = re.compile(
    r"nccl(dev)?kernel|^ncclkernel|rccl|hccl|oneccl|^ccl_|msccl|nvshmem|deep_?ep"
    r"|cross_device_reduce_|multimem_(all|one)_|one_shot_all_|two_shot_all_|custom_?all_?reduce",
    re.IGNORECASE,
)


@cache
def collective_kind(kernel: str) -> str | None:
    """Which collective a device kernel carries out (``allreduce``, …), or None if it is none.

    Kernels of a collective library whose name tells no more (``ncclDevKernel_Generic``) give
    ``"other"``.
    """
    if _LIBRARY.search(kernel) is None:
        return None
    bare = kernel.lower().replace("_", "")
    for word, kind in _COLLECTIVES:
        if word.replace("_", "") in bare:
            return kind
    return "other"
