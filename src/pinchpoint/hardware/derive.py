"""Peaks of an NVIDIA device that has no data sheet here, from what the driver says about it.

FLOP per cycle and multiprocessor are fixed by the compute capability (the throughput tables of the
CUDA C++ programming guide and the architecture whitepapers); times multiprocessors and clock they
give the peak. GeForce parts run fp16 and bf16 tensor work with fp32 accumulation at half the rate
of their professional siblings; the lower one is used, as the name does not always tell.
"""

from types import MappingProxyType

from pinchpoint.hardware.specs import DeviceSpec

SOURCE = "computed: multiprocessors x clock x FLOP per cycle of the compute capability"

FLOP_PER_CYCLE: dict[tuple[int, int], dict[str, int]] = {
    (6, 0): {"fp32": 128, "fp64": 64, "fp16": 256},
    (6, 1): {"fp32": 256, "fp64": 8},
    (7, 0): {"fp32": 128, "fp64": 64, "fp16": 1024},
    (7, 5): {"fp32": 128, "fp64": 4, "fp16": 512, "int8": 2048},
    (8, 0): {
        "fp32": 128, "fp64": 64, "fp64_matrix": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048,
        "int8": 4096,
    },
    (8, 6): {"fp32": 256, "fp64": 4, "tf32": 256, "fp16": 512, "bf16": 512, "int8": 2048},
    (8, 7): {"fp32": 256, "fp64": 4, "tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048},
    (8, 9): {
        "fp32": 256, "fp64": 4, "tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 2048,
    },
    (9, 0): {
        "fp32": 256, "fp64": 128, "fp64_matrix": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096,
        "fp8": 8192, "int8": 8192,
    },
    (10, 0): {
        "fp32": 256, "fp64": 128, "tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384,
        "int8": 16384, "fp4": 32768,
    },
    (12, 0): {
        "fp32": 256, "fp64": 4, "tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 2048,
        "fp4": 4096,
    },
}  # fmt: skip


def derived_spec(
    name: str,
    compute_capability: tuple[int, int],
    multiprocessors: int,
    clock_hz: float,
    memory_bytes_per_s: float | None = None,
    l2_bytes: int | None = None,
) -> DeviceSpec | None:
    """A spec from driver facts, or None for a compute capability that is not in the table."""
    rates = FLOP_PER_CYCLE.get(compute_capability)
    if rates is None or multiprocessors <= 0 or clock_hz <= 0:
        return None
    per_unit = multiprocessors * clock_hz
    return DeviceSpec(
        name=name,
        vendor="nvidia",
        architecture=f"compute capability {compute_capability[0]}.{compute_capability[1]}",
        peaks_flop_per_s=MappingProxyType({k: v * per_unit for k, v in rates.items()}),
        memory_bytes_per_s=memory_bytes_per_s,
        compute_capability=compute_capability,
        multiprocessors=multiprocessors,
        clock_hz=clock_hz,
        l2_bytes=l2_bytes,
        source=SOURCE,
    )


def flop_per_cycle(spec: DeviceSpec, dtype: str) -> float | None:
    """FLOP per cycle of the whole device for a type, or None.

    The rate of the compute capability, doubled where the data sheet speaks of the professional
    part: its clock is no good for this, since some data sheets assume a lower one for tensor work.
    """
    peak = spec.peak_flop_per_s(dtype)
    if spec.multiprocessors is None or peak is None:
        return None
    if spec.compute_capability is not None:
        rates = FLOP_PER_CYCLE.get(_NEAREST.get(spec.compute_capability, spec.compute_capability))
        if rates is not None and dtype in rates and spec.clock_hz is not None:
            whole = rates[dtype] * spec.multiprocessors
            return whole * (2 if peak / spec.clock_hz > 1.5 * whole else 1)
    return None if spec.clock_hz is None else peak / spec.clock_hz


_NEAREST = {(10, 3): (10, 0), (12, 1): (12, 0)}
