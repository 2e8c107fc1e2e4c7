"""What kind of work each event is: what the colours of the timeline stand for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.trace import ApiKind, HostKind, Trace

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Kind:
    """``css`` is the colour's name in the script; kinds of host and device may share one."""

    label: str
    lane: str  # device, host
    css: str


_DEVICE: tuple[tuple[Kind, tuple[Category, ...]], ...] = (
    (
        Kind("matrix products, convolutions", "device", "blue"),
        (Category.GEMM, Category.CONVOLUTION),
    ),
    (Kind("attention", "device", "violet"), (Category.ATTENTION,)),
    (
        Kind("normalisation, softmax, reduction", "device", "teal"),
        (Category.NORMALISATION, Category.SOFTMAX, Category.REDUCTION, Category.POOLING),
    ),
    (Kind("elementwise, optimizer", "device", "green"), (Category.ELEMENTWISE, Category.OPTIMIZER)),
    (
        Kind("embedding, sorting, data movement", "device", "olive"),
        (Category.EMBEDDING, Category.SORTING, Category.DATA_MOVEMENT),
    ),
    (Kind("communication", "device", "red"), (Category.COLLECTIVE,)),
    (
        Kind("copies and fills", "device", "orange"),
        (
            Category.COPY_H2D,
            Category.COPY_D2H,
            Category.COPY_D2D,
            Category.COPY_P2P,
            Category.COPY_OTHER,
            Category.MEMSET,
        ),
    ),
    (Kind("other device work", "device", "grey"), ()),
)
_HOST: tuple[tuple[Kind, tuple[HostKind, ...]], ...] = (
    (Kind("operator", "host", "blue"), (HostKind.OPERATOR,)),
    (Kind("Python", "host", "green"), (HostKind.PYTHON,)),
    (Kind("module", "host", "teal"), (HostKind.MODULE,)),
    (Kind("annotation", "host", "violet"), (HostKind.ANNOTATION,)),
    (Kind("compiler", "host", "pink"), (HostKind.COMPILE,)),
    (Kind("profiler, operating system", "host", "grey"), ()),
)
_CALLS: tuple[tuple[Kind, tuple[ApiKind, ...]], ...] = (
    (Kind("launch", "host", "olive"), (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH)),
    (
        Kind("wait for the device", "host", "red"),
        (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT),
    ),
    (
        Kind("copy, memory", "host", "orange"),
        (ApiKind.COPY, ApiKind.MEMSET, ApiKind.MALLOC, ApiKind.FREE, ApiKind.HOST_ALLOC),
    ),
    (Kind("other call of the driver", "host", "brown"), ()),
)
KINDS = tuple(kind for kind, _ in (*_DEVICE, *_HOST, *_CALLS))


def kinds(trace: Trace) -> tuple[Numbers, Numbers, Numbers]:
    """Of each row of device_ops, host_ops and api_calls the position of its kind in KINDS."""
    host, calls = trace.host_ops, trace.api_calls
    of_host = np.zeros(0, np.int64) if host is None else host["kind"]
    of_calls = np.zeros(0, np.int64) if calls is None else calls["kind"]
    first_call = len(_DEVICE) + len(_HOST)
    return (
        _looked_up(category_of_device_ops(trace), [own for _, own in _DEVICE], 0),
        _looked_up(of_host, [own for _, own in _HOST], len(_DEVICE)),
        _looked_up(of_calls, [own for _, own in _CALLS], first_call),
    )


def _looked_up(
    values: NDArray[np.generic],
    groups: Sequence[tuple[int, ...]],
    first: int,
) -> Numbers:
    """The position of the group that has each value; the last group takes what none has."""
    table = np.full(256, first + len(groups) - 1, np.int64)  # values are of one byte
    for position, own in enumerate(groups):
        table[list(own)] = first + position
    found: Numbers = table[values.astype(np.uint8)]
    return found
