"""Write a made-up training trace of any size, spelt as ``torch.profiler`` spells it.

Streams its text, so memory stays small; the same size gives the same bytes. Host events come
first, then calls, kernels and their arrows, as Kineto orders them.
"""

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

PROCESS, MAIN, BACKWARD, STREAM = 4100, 4100, 4190, 7
FIRST_NS = 4_959_259_431_590_139  # since the base time, as in a real file
LAYERS, OPERATORS_OF_LAYER = 24, 12
KERNELS = tuple(
    f"void at::native::kernel_{i}<4, at::native::Functor_{i}<c10::BFloat16>, std::array<char*, 3> >"
    f"(int, at::native::Functor_{i}<c10::BFloat16>, std::array<char*, 3>)"
    for i in range(60)
)
OPERATORS = ("linear", "addmm", "view", "transpose", "add", "gelu", "layer_norm", "mm", "copy_")
SHAPES = ("[8, 1024, 768]", "[768, 3072]", "[]", "[8, 12, 1024, 64]", "[3072]", "[[768], [768]]")
HEAD = """
 {
    "schemaVersion": 1,
    "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85017493504,
      "computeMajor": 9, "computeMinor": 0, "numSms": 132
    }
    ],
      "record_shapes": 1,
      "with_stack": 1,
      "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": ["""
SPAN = """
  {{
    "ph": "X", "cat": "{}", "name": "{}", "pid": {}, "tid": {},
    "ts": {}, "dur": {},
    "args": {{
      {}
    }}
  }},"""
ARROW = """
  {{
    "ph": "{}", "id": {}, "pid": {}, "tid": {}, "ts": {},
    "cat": "ac2g", "name": "ac2g"{}
  }},"""
TAIL = """
  {
    "name": "Record Window End", "ph": "i", "s": "g",
    "pid": "", "tid": "", "ts": %s
  }
  ],
  "traceName": "synthetic.json"
}
"""


def write(path: Path, size: int) -> int:
    """Write about ``size`` bytes of text, gzipped; returns their number."""
    one_step = len("".join(host_events(0)).encode()) + len("".join(device_events(0)).encode())
    steps = max(1, round(size / one_step))
    with gzip.open(path, "wb", 6) as file:
        written = put(file, HEAD)
        for half in (host_events, device_events):
            for step in range(steps):
                written += put(file, "".join(half(step)))
        return written + put(file, TAIL % microseconds(FIRST_NS + steps * STEP_NS))


def put(file: gzip.GzipFile, text: str) -> int:
    """Write a text; returns its length in bytes."""
    return file.write(text.encode())


def microseconds(ns: int) -> str:
    """A time as Kineto writes it."""
    return f"{ns // 1000}.{ns % 1000:03d}"


STEP_NS = 40_000_000
OPERATOR_NS = STEP_NS // (LAYERS * OPERATORS_OF_LAYER + 10)


def host_events(step: int) -> Iterator[str]:
    """Marker, frames, modules and operators of one step."""
    rng, begin = random.Random(step), FIRST_NS + step * STEP_NS
    number = step * LAYERS * OPERATORS_OF_LAYER * 2

    def span(category: str, name: str, at: int, takes: int, args: str, thread: int = MAIN) -> str:
        times = microseconds(at), microseconds(takes)
        return SPAN.format(category, name, PROCESS, thread, *times, args)

    yield span(
        "user_annotation", f"ProfilerStep#{step}", begin, STEP_NS - 9000, f'"External id": {number}'
    )
    for layer in range(LAYERS):
        start = begin + layer * OPERATORS_OF_LAYER * OPERATOR_NS
        takes = OPERATORS_OF_LAYER * OPERATOR_NS
        ids = f'"Python parent id": {layer}, "Python id": {number + layer}, "Ev Idx": {number}'
        for depth, name in enumerate(("model.py(84): forward", f"nn.Module: Block_{layer}")):
            yield span("python_function", name, start + depth, takes - 2 * depth - 1, ids)
        for i in range(OPERATORS_OF_LAYER):
            number += 2
            at = start + 10 + i * OPERATOR_NS
            name, shape = OPERATORS[i % len(OPERATORS)], SHAPES[rng.randrange(len(SHAPES))]
            args = (
                f'"External id": {number},"Record function id": 0, "Sequence number": {number}, '
                f'"Fwd thread id": 0, "Concrete Inputs": ["", "", "{rng.randrange(9)}"], '
                '"Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar"], '
                f'"Input Strides": [{shape}, {shape}, []], '
                f'"Input Dims": [{shape}, {shape}, []], "Ev Idx": {number}'
            )
            thread = MAIN if layer % 2 else BACKWARD
            yield span("cpu_op", f"aten::{name}", at, OPERATOR_NS - 900, args, thread)
            yield span(
                "cpu_op",
                "aten::as_strided",
                at + 400,
                2_000,
                f'"External id": {number + 1}',
                thread,
            )


def device_events(step: int) -> Iterator[str]:
    """Launches, kernels and arrows of one step."""
    rng, begin = random.Random(-step), FIRST_NS + step * STEP_NS
    for i in range(LAYERS * OPERATORS_OF_LAYER // 2):
        correlation = step * 1_000_000 + i + 1
        at = begin + 2 * i * OPERATOR_NS + 500
        runs, takes = microseconds(at + 9_000), microseconds(rng.randrange(900, 60_000))
        thread = MAIN if i // (OPERATORS_OF_LAYER // 2) % 2 else BACKWARD
        link = f'"External id": {2 * i + 2},"cbid": 211, "correlation": {correlation}'
        where = PROCESS, thread, microseconds(at)
        yield SPAN.format("cuda_runtime", "cudaLaunchKernel", *where, microseconds(4_100), link)
        yield ARROW.format("s", correlation, *where, "")
        args = (
            f'"External id": {2 * i + 2},      "queued": 0, "device": 0, "context": 1,      '
            f'"stream": {STREAM}, "correlation": {correlation},      '
            f'"registers per thread": 32,      "shared memory": 0,      '
            f'"blocks per SM": {rng.randrange(9999) / 132:.6f},      '
            f'"warps per SM": 4.5,      "grid": [{rng.randrange(1, 9999)}, 1, 1],      '
            f'"block": [128, 1, 1],      "est. achieved occupancy %": {rng.randrange(100)}'
        )
        yield SPAN.format("kernel", KERNELS[rng.randrange(60)], 0, STREAM, runs, takes, args)
        yield ARROW.format("f", correlation, 0, STREAM, runs, ', "bp": "e"')
