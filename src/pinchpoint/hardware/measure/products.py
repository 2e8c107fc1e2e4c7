"""The highest rate of matrix products: a sweep over shapes for each number format."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from pinchpoint.frozen import dataclass
from pinchpoint.hardware.ceilings import Measurement
from pinchpoint.hardware.measure.timing import ClockRates, Machine, Timed

Shape = tuple[int, int, int]  # m, n, k

# Squares, and the products of transformer layers; the best shape differs between chips.
SHAPES: tuple[Shape, ...] = (
    (2048, 2048, 2048), (3072, 3072, 3072), (4096, 4096, 4096), (5120, 5120, 5120),
    (6144, 6144, 6144), (8192, 8192, 8192), (10240, 10240, 10240), (12288, 12288, 12288),
    (16384, 16384, 16384), (4096, 4096, 8192), (4096, 4096, 16384), (8192, 8192, 4096),
    (8192, 8192, 16384), (4096, 16384, 4096), (16384, 4096, 4096), (8192, 4096, 4096),
    (8192, 14336, 4096), (8192, 4096, 14336), (16384, 8192, 8192), (8192, 28672, 8192),
    (4096, 12288, 4096), (6144, 6144, 12288),
)  # fmt: skip
# The largest takes 7 GFLOP: a fifth of a second at 36 GFLOP/s, which is LONGEST_CALL_S.
CPU_SHAPES: tuple[Shape, ...] = ((512, 512, 512), (1024, 1024, 1024), (1536, 1536, 1536))

GPU_DTYPES = ("bf16", "fp16", "tf32", "fp32", "fp8", "int8", "fp64")
CPU_DTYPES = ("fp32", "bf16")

LONGEST_CALL_S = {"cuda": 0.015, "cpu": 0.2}  # longer products gain nothing and take time
_MEMORY_SHARE = 0.25  # of free memory, for operands and result
# Tells which other shapes would take too long.
_PROBE: Shape = (4096, 4096, 4096)
_CPU_PROBE: Shape = (512, 512, 512)  # the same for a CPU


@dataclass(frozen=True)
class Product:
    """A product ready to be called, and what it takes."""

    call: Callable[[], Any]
    flops: int
    bytes: int


class NotSupported(Exception):
    """This device or version of torch cannot multiply in this format."""


def prepare(machine: Machine, dtype: str, shape: Shape) -> Product:
    """Random normal operands (what they hold decides the power drawn) in the layout of a linear
    layer, and the product into a result that is there already."""
    torch, (m, n, k) = machine.torch, shape
    made = {
        "bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32,
        "fp32": torch.float32, "fp64": torch.float64,
    }  # fmt: skip
    if dtype in made:
        a = torch.randn(m, k, device=machine.device, dtype=made[dtype])
        b = torch.randn(n, k, device=machine.device, dtype=made[dtype]).t()
        out = torch.empty(m, n, device=machine.device, dtype=made[dtype])
        return Product(lambda: torch.mm(a, b, out=out), 2 * m * n * k, _bytes(a, b, out))
    if dtype == "int8":
        a = torch.randint(-127, 127, (m, k), device=machine.device, dtype=torch.int8)
        b = torch.randint(-127, 127, (n, k), device=machine.device, dtype=torch.int8).t()
        return Product(lambda: torch._int_mm(a, b), 2 * m * n * k, _bytes(a, b) + 4 * m * n)
    if dtype == "fp8":
        eight = torch.float8_e4m3fn
        a = torch.randn(m, k, device=machine.device).to(eight)
        b = torch.randn(n, k, device=machine.device).to(eight).t()
        one = torch.ones((), device=machine.device)
        return Product(
            lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True),
            2 * m * n * k,
            _bytes(a, b) + 2 * m * n,
        )
    raise NotSupported(dtype)


def _bytes(*tensors: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def best_product(
    machine: Machine, clocks: ClockRates, dtype: str, shapes: tuple[Shape, ...] | None = None
) -> tuple[Measurement, Shape]:
    """The burst rate of the best shape. Raises NotSupported where there is no such product."""
    with _precision(machine, dtype):
        rates = list(_rates(machine, clocks, dtype, shapes))
    if not rates:
        raise NotSupported(f"no product of {dtype} fits")
    best, shape = max(rates, key=lambda pair: pair[0].value)
    # The best of all shapes is not known where others had the CPUs during one of them.
    waits = [m.waited_ratio for m, _ in rates if m.waited_ratio is not None]
    return msgspec.structs.replace(best, waited_ratio=max(waits, default=None)), shape


@contextmanager
def _precision(machine: Machine, dtype: str) -> Iterator[None]:
    """float32 products as they are, or in TF32; what the program had set comes back."""
    torch = machine.torch
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _rates(
    machine: Machine, clocks: ClockRates, dtype: str, shapes: tuple[Shape, ...] | None
) -> Iterator[tuple[Measurement, Shape]]:
    probe = _PROBE if machine.on_gpu else _CPU_PROBE
    try:
        product = prepare(machine, dtype, probe)
        machine.once(product.call, 1)
        expected = product.flops / max(machine.once(product.call, 3), 1.0)  # FLOP/ns
    except (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError) as error:
        raise NotSupported(f"{dtype}: {str(error).splitlines()[0][:120]}") from None
    del product
    for shape in shapes or (SHAPES if machine.on_gpu else CPU_SHAPES):
        m, n, k = shape
        too_long = 2 * m * n * k / expected > LONGEST_CALL_S[machine.device.type] * 1e9
        too_large = 8 * (m * k + n * k + m * n) > _MEMORY_SHARE * _free_bytes(machine)
        if shape != probe and (too_long or too_large):
            continue
        try:
            product = prepare(machine, dtype, shape)
            timed = machine.bursts(product.call, watch=clocks.watch)
        except RuntimeError:  # out of memory, or a shape that this library has no kernel for
            continue
        expected = max(expected, product.flops / timed.median_ns)
        yield _measurement(dtype, "burst", product, timed, shape, clocks.seen), shape
        del product


def sustained_product(
    machine: Machine, clocks: ClockRates, dtype: str, shape: Shape, seconds: float
) -> Measurement:
    """The rate of a shape after it has run for a while."""
    with _precision(machine, dtype):
        product = prepare(machine, dtype, shape)
        timed = machine.sustained(product.call, seconds, clocks.watch)
    return _measurement(dtype, "sustained", product, timed, shape, clocks.seen)


def _measurement(
    dtype: str, mode: str, product: Product, timed: Timed, shape: Shape, state: Any
) -> Measurement:
    m, n, k = shape
    return Measurement(
        what="gemm",
        dtype=dtype,
        mode=mode,
        value=product.flops / timed.median_ns * 1e9,
        unit="FLOP/s",
        at=f"{m} x {n} x {k}, normal random operands, linear-layer layout",
        spread_ratio=timed.spread_ratio,
        waited_ratio=timed.waited_ratio,
        sm_clock_hz=state.sm_clock_hz,
        power_w=state.power_w,
        throttled=state.throttled,
    )


def _free_bytes(machine: Machine) -> float:
    if machine.on_gpu:
        return float(machine.torch.cuda.mem_get_info(machine.device)[0])
    import psutil

    return float(psutil.virtual_memory().available)
