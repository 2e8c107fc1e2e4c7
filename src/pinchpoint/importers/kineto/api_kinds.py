"""What a runtime or driver call does, from its name: CUDA, HIP, Level Zero, SYCL, MTIA."""

import re

from pinchpoint.trace import ApiKind

_VERSION = re.compile(r"(?:_v\d+|_pts[dz]|R\d{4})+$")
_VENDOR = r"(?:cuda|cu|hip)"
_RULES: tuple[tuple[ApiKind, str], ...] = (
    (ApiKind.GRAPH_LAUNCH, rf"{_VENDOR}GraphLaunch"),
    (
        ApiKind.GRAPH_BUILD,
        rf"{_VENDOR}(?:Graph(?!Launch)|Stream(?:Begin|End)Capture|StreamUpdateCapture)",
    ),
    (
        ApiKind.LAUNCH,
        rf"{_VENDOR}(?:Ext|Hcc)?(?:Module)?Launch|zeCommandListAppendLaunch"
        r"|urEnqueue(?:Cooperative)?KernelLaunch|piEnqueueKernelLaunch|runFunction",
    ),
    (
        ApiKind.HOST_ALLOC,
        r"cudaHostAlloc|cudaMallocHost|cu(?:da)?(?:Mem)?HostRegister|cuMemHostAlloc|cuMemAllocHost"
        r"|hipHostMalloc|hipHostAlloc|hipMallocHost|hipMemAllocHost|hipHostRegister"
        r"|zeMemAllocHost|urUSMHostAlloc",
    ),
    (ApiKind.OTHER, rf"{_VENDOR}(?:Mem)?(?:Malloc|Alloc|Free)(?:FromPool)?Async|{_VENDOR}FreeHost"),
    (
        ApiKind.MALLOC,
        r"cudaMalloc|cuMemAlloc|cuMemCreate|cuMemMap$|hipMalloc|hipExtMalloc|hipMemAlloc"
        r"|hipMemCreate|hipMemMap$|zeMemAlloc(?:Device|Shared)|urUSM(?:Device|Shared)Alloc",
    ),
    (
        ApiKind.FREE,
        r"cudaFree|cuMemFree|cuMemUnmap|cuMemRelease|hipFree|hipMemUnmap|hipMemRelease"
        r"|zeMemFree|urUSMFree",
    ),
    (
        ApiKind.QUERY,
        rf"{_VENDOR}\w*(?:Get|Query|Occupancy|PeekAt|IsCapturing|ElapsedTime|CanAccess)"
        r"|ze\w+(?:Get|Query)|ur\w+Get",
    ),
    (
        ApiKind.COPY,
        rf"{_VENDOR}Memcpy|zeCommandListAppendMemoryCopy|urEnqueue(?:USM|MemBuffer)\w*"
        r"(?:Memcpy|Copy|Read|Write)|enqueueCommand memcpy",
    ),
    (
        ApiKind.MEMSET,
        rf"{_VENDOR}Memset|zeCommandListAppendMemoryFill|urEnqueue(?:USM|MemBuffer)\w*Fill",
    ),
    (
        ApiKind.SYNC_DEVICE,
        r"(?:cuda|hip)(?:Device|Thread)Synchronize|(?:cu|hip)CtxSynchronize|synchronize$",
    ),
    (
        ApiKind.SYNC_STREAM,
        rf"{_VENDOR}StreamSynchronize|synchronizeStream|urQueueFinish"
        r"|zeCommand(?:Queue|List)(?:Host)?Synchronize",
    ),
    (
        ApiKind.SYNC_EVENT,
        rf"{_VENDOR}EventSynchronize|ze(?:Event|Fence)HostSynchronize|urEventWait",
    ),
    (ApiKind.EVENT_RECORD, rf"{_VENDOR}EventRecord|recordEvent"),
    (
        ApiKind.STREAM_WAIT,
        rf"{_VENDOR}StreamWaitEvent|zeCommandListAppendWaitOnEvents|urEnqueueEventsWait"
        r"|enqueueCommand waitOnEvent",
    ),
    (
        ApiKind.MODULE_LOAD,
        r"cuModule(?:Load|Unload)|cuLibraryLoad|cudaLibraryLoad|hipModule(?:Load|Unload)"
        r"|zeModuleCreate|urProgramCreate",
    ),
)
"""In order; the first that matches the beginning of a name decides."""

_COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in _RULES)


def api_name(name: str) -> str:
    """The call without the suffixes that tell its versions apart."""
    return _VERSION.sub("", name) or name


def api_kind(name: str) -> ApiKind:
    """What the call does."""
    for kind, pattern in _COMPILED:
        if pattern.match(name):
            return kind
    return ApiKind.OTHER
