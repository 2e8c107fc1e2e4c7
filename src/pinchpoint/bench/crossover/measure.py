"""Measures the curves, and looks closer where they cross."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pinchpoint.bench.crossover.crossing import (
    MOST_LOOKS,
    Crossing,
    Point,
    Time,
    crossing,
    next_size,
    slope,
)
from pinchpoint.bench.folders import utc_now
from pinchpoint.bench.micro.time_function import time_function
from pinchpoint.bench.micro.timing import StoppingRule
from pinchpoint.errors import MissingExtra
from pinchpoint.frozen import dataclass

# ------------------------------------------------------------------------------------------------
# The operations that are compared, each over one size.


ROW = 1024  # columns of the row-wise operations
HEAD = 64  # width of an attention head
CHANNELS = 64  # of the first stage of a ResNet


@dataclass(frozen=True)
class Operation:
    """``inputs(n)`` gives shapes; ``run`` the work on tensors of these shapes."""

    name: str
    size_is: str
    least: int
    most: int
    inputs: Callable[[int], tuple[tuple[int, ...], ...]]
    run: Callable[..., Any]
    flop: Callable[[int], float]


def _torch() -> Any:
    import torch

    return torch


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "matmul",
        "n of an n x n product",
        8,
        4096,
        lambda n: ((n, n), (n, n)),
        lambda a, b: a @ b,
        lambda n: 2.0 * n**3,
    ),
    Operation("add", "elements", 64, 1 << 26, lambda n: ((n,), (n,)), lambda a, b: a + b, float),
    Operation("sum", "elements", 64, 1 << 26, lambda n: ((n,),), lambda a: a.sum(), float),
    Operation(
        "exp", "elements", 64, 1 << 26, lambda n: ((n,),), lambda a: a.exp(), lambda n: 10.0 * n
    ),
    Operation(
        "softmax",
        f"rows of {ROW}",
        1,
        1 << 16,
        lambda n: ((n, ROW),),
        lambda a: _torch().softmax(a, -1),
        lambda n: 5.0 * n * ROW,
    ),
    Operation(
        "layer_norm",
        f"rows of {ROW}",
        1,
        1 << 16,
        lambda n: ((n, ROW),),
        lambda a: _torch().nn.functional.layer_norm(a, (ROW,)),
        lambda n: 8.0 * n * ROW,
    ),
    Operation("sort", "elements", 64, 1 << 24, lambda n: ((n,),), lambda a: a.sort().values, float),
    Operation(
        "conv2d",
        f"n of an n x n image, {CHANNELS} channels, 3 x 3",
        4,
        256,
        lambda n: ((1, CHANNELS, n, n), (CHANNELS, CHANNELS, 3, 3)),
        lambda x, w: _torch().nn.functional.conv2d(x, w, padding=1),
        lambda n: 2.0 * 9 * CHANNELS**2 * n**2,
    ),
    Operation(
        "attention",
        f"sequence length, 8 heads of {HEAD}",
        8,
        4096,
        lambda n: ((1, 8, n, HEAD),) * 3,
        lambda q, k, v: _torch().nn.functional.scaled_dot_product_attention(q, k, v),
        lambda n: 4.0 * 8 * n**2 * HEAD,
    ),
)


def sizes(operation: Operation, factor: int = 4) -> list[int]:
    """Geometric sizes from the least to the most."""
    found = [operation.least]
    while found[-1] * factor <= operation.most:
        found.append(found[-1] * factor)
    return found


# ------------------------------------------------------------------------------------------------
# Measures the curves, and looks closer where they cross.


SCHEMA = "bench.crossover/1"

RULE = StoppingRule(
    precision=0.02, least_samples=20, most_samples=500, least_seconds=0.05, most_seconds=0.3
)

# Times a function of no arguments on a backend.
Stopwatch = Callable[[Callable[[], Any], str], Time]


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """One operation: its sizes and its two crossings."""

    operation: str
    size_is: str
    dtype: str
    points: tuple[Point, ...]
    kernel_only: Crossing
    with_transfers: Crossing
    cpu_slope: float | None
    gpu_slope: float | None


class CrossoverResult(msgspec.Struct, frozen=True, kw_only=True):
    """All operations."""

    schema: str = SCHEMA
    created_utc: str
    cpu: str
    cpu_threads: int
    gpu: str | None
    transfers: str
    curves: tuple[Curve, ...]
    warnings: tuple[str, ...] = ()
    unknown: dict[str, str] = {}


@dataclass(frozen=True)
class Machine:
    """What there is to compare."""

    cpu: str
    threads: int
    gpu: str | None
    no_gpu: str = ""  # why there is none


def this_machine() -> Machine:
    """Raises MissingExtra without torch, which runs the operations."""
    try:
        import torch
    except ImportError:
        raise MissingExtra(
            "crossover runs its operations on torch", hint="pip install torch"
        ) from None
    from pinchpoint.monitor.environment.host import cpu_model

    cpu = cpu_model() or "CPU"
    if not torch.cuda.is_available():
        return Machine(cpu, torch.get_num_threads(), None, "torch sees no CUDA device")
    return Machine(cpu, torch.get_num_threads(), torch.cuda.get_device_name())


def stopwatch(call: Callable[[], Any], backend: str) -> Time:
    """Batched median with its interval, by ``pp.time``."""
    samples = time_function(call, backend=backend, rule=RULE, cold=False).batched
    low, high = samples.ci95_ns or (samples.call_ns.min(), samples.call_ns.max())
    return Time(samples.median_ns, float(low), float(high))


def crossover(
    operations: Sequence[Operation],
    dtype: str,
    *,
    machine: Machine,
    watch: Stopwatch | None = None,
    notice: Callable[[str], None],
    warnings: tuple[str, ...] = (),
) -> CrossoverResult:
    """Measure every operation; without a GPU only the CPU, and the result says so."""
    curves = []
    for operation in operations:
        notice(operation.name)
        curves.append(_curve(operation, dtype, machine, watch or stopwatch))
    why = {} if machine.gpu else dict.fromkeys(("gpu", "curves.*.points.*.gpu"), machine.no_gpu)
    return CrossoverResult(
        created_utc=utc_now(),
        cpu=machine.cpu,
        cpu_threads=machine.threads,
        gpu=machine.gpu,
        transfers="inputs from pageable host memory, result back, each call waited for",
        curves=tuple(curves),
        warnings=warnings,
        unknown=why,
    )


def _curve(operation: Operation, dtype: str, machine: Machine, watch: Stopwatch) -> Curve:
    points = [_point(operation, n, dtype, machine, watch) for n in sizes(operation)]
    for which in (_kernel_only, _with_transfers):
        for _ in range(MOST_LOOKS):
            n = next_size(points, which)
            if n is None:
                break
            points.append(_point(operation, n, dtype, machine, watch))
    points.sort(key=lambda p: p.size)
    return Curve(
        operation=operation.name,
        size_is=operation.size_is,
        dtype=dtype,
        points=tuple(points),
        kernel_only=crossing(points, _kernel_only),
        with_transfers=crossing(points, _with_transfers),
        cpu_slope=slope(points, lambda p: p.cpu),
        gpu_slope=slope(points, _kernel_only),
    )


def _kernel_only(point: Point) -> Time | None:
    return point.gpu


def _with_transfers(point: Point) -> Time | None:
    return point.gpu_with_transfers


def _point(operation: Operation, n: int, dtype: str, machine: Machine, watch: Stopwatch) -> Point:
    import torch

    kind = getattr(torch, dtype)
    host = [torch.randn(shape, dtype=torch.float32).to(kind) for shape in operation.inputs(n)]
    cpu = watch(lambda: operation.run(*host), "cpu")
    if machine.gpu is None:
        return Point(n, cpu)
    device = [x.cuda() for x in host]
    gpu = watch(lambda: operation.run(*device), "cuda")
    both = watch(lambda: operation.run(*(x.cuda() for x in host)).cpu(), "cpu")
    return Point(n, cpu, gpu, both)
