"""Write the recordings of a made-up job: many ranks, small files, known culprits.

    python benchmarks/make_ranks.py FOLDER --ranks 1024 [--steps 6] [--layers 4] [--seed 1]

Tensor-parallel groups of eight and one data-parallel group of all. Each layer computes and all-
reduces in its small group; in the backward pass it also hands a bucket to the large group, which
reduces it beside the computing of the next layers. One file a rank, as PyTorch writes them. Planted
and written to ``truth.json``: a rank whose loader stalls from the fourth step on, a rank whose
device is slow, clocks that are up to 50 ms apart and drift by up to 20 ppm, a missing rank, a file
that is cut off and one that is no recording.
"""

import argparse
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SMALL_GROUP = 8
BASE_NS = 1_790_857_026_000_000_000
US, MS = 1_000, 1_000_000
LAUNCH_NS, LATENCY_NS, SYNC_NS = 4 * US, 6 * US, 10 * US
FORWARD_NS, BACKWARD_NS, OPTIMIZER_NS = 1_000 * US, 2_000 * US, 400 * US
SMALL_NS, BUCKET_NS = 120 * US, 900 * US
SMALL_ELEMENTS, BUCKET_ELEMENTS = 4 << 20, 32 << 20
STALL_NS, STALLS_FROM = 6 * MS, 3
SLOW_FACTOR = 1.25
SKEW_NS, DRIFT = 50 * MS, 20e-6
GROUPS = {"small": "tensor parallel", "all": "data parallel"}
COMPUTE, COMM = 7, 20  # streams
LOADER = "torch/utils/data/dataloader.py(700): __next__"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True)
class Truth:
    """What is planted."""

    ranks: int
    stalls: int
    slow: int
    missing: int
    cut: int
    garbage: int


@dataclass
class Kernel:
    """One device operation of all ranks; arrays of one element a rank."""

    name: str
    stream: int
    start: np.ndarray
    end: np.ndarray
    step: int
    group: str | None = None  # small, all


def truth_for(ranks: int) -> Truth:
    """Culprits far from each other and from the edges."""
    return Truth(ranks, ranks // 7, ranks // 3 + 1, ranks // 2 + 3, ranks - 5, ranks - 11)


def simulate(truth: Truth, steps: int, layers: int, random: np.random.Generator) -> Iterator[Any]:
    """Steps as (begin, stall, kernels, end), on the true clock."""
    n = truth.ranks
    speed = np.ones(n)
    speed[truth.slow] = SLOW_FACTOR
    end = np.zeros(n)
    for step in range(steps):
        begin = end + 30 * US
        stall = np.zeros(n)
        if step >= STALLS_FROM:
            stall[truth.stalls] = STALL_NS
        t = begin + stall + LATENCY_NS + LAUNCH_NS
        kernels: list[Kernel] = []
        free = np.zeros(n)
        for backward in (False, True):
            for _ in range(layers):
                takes = (BACKWARD_NS if backward else FORWARD_NS) * speed
                takes = takes * random.normal(1, 0.004, n)
                kernels.append(Kernel(GEMM, COMPUTE, t, t + takes, step))
                t = t + takes
                together = _meet(t, SMALL_GROUP) + SMALL_NS
                kernels.append(Kernel(NCCL, COMPUTE, t, together, step, "small"))
                t = together
                if backward:
                    start = np.maximum(t, free)
                    free = np.full(n, start.max() + BUCKET_NS)
                    kernels.append(Kernel(NCCL, COMM, start, free, step, "all"))
        t = np.maximum(t, free)
        kernels.append(Kernel("multi_tensor_apply_kernel", COMPUTE, t, t + OPTIMIZER_NS, step))
        end = t + OPTIMIZER_NS + SYNC_NS
        yield begin, stall, kernels, end


def _meet(arrival: np.ndarray, size: int) -> np.ndarray:
    """When the last of each group of neighbours is there."""
    groups = np.arange(len(arrival)) // size
    last = np.zeros(groups.max() + 1)
    np.maximum.at(last, groups, arrival)
    return last[groups]


def events(rank: int, truth: Truth, job: list[Any], skew: float, drift: float) -> Iterator[dict]:
    """One rank's events as Kineto orders them: the host's before the device's."""

    def us(true_ns: float) -> float:
        return round(true_ns * (1 + drift) + skew + 200 * MS) / 1000

    pid, device = 4000 + rank, 0
    on_host = {"pid": pid, "tid": pid}
    late = []
    correlation = 0
    for step, (begin, stall, kernels, end) in enumerate(job):
        at = begin[rank]
        first = us(at)
        takes = us(end[rank]) - first
        yield _x("user_annotation", f"ProfilerStep#{step + 3}", first, takes, on_host)
        if stall[rank]:
            yield _x("python_function", LOADER, first, us(at + stall[rank]) - first, on_host)
        at += stall[rank]
        for kernel in kernels:
            correlation += 1
            operator = "c10d::allreduce_" if kernel.group else "aten::mm"
            linked = {"correlation": correlation, "External id": correlation}
            yield _x("cpu_op", operator, us(at), 3.5, on_host, {"External id": correlation})
            yield _x("cuda_runtime", "cudaLaunchKernel", us(at + 500), 2.0, on_host, linked)
            at += LAUNCH_NS
            start = us(kernel.start[rank])
            args = linked | {"stream": kernel.stream, "device": device, "grid": [132, 1, 1]}
            args |= _collective(kernel, rank, truth)
            on_stream = {"pid": device, "tid": kernel.stream}
            late.append(
                _x("kernel", kernel.name, start, us(kernel.end[rank]) - start, on_stream, args)
            )
        waits = us(end[rank]) - us(at)
        sync = {"correlation": 10**6 + step}
        yield _x("cuda_runtime", "cudaStreamSynchronize", us(at), waits, on_host, sync)
    yield from late


def _collective(kernel: Kernel, rank: int, truth: Truth) -> dict:
    if kernel.group is None:
        return {}
    first = rank // SMALL_GROUP * SMALL_GROUP if kernel.group == "small" else 0
    size = SMALL_GROUP if kernel.group == "small" else truth.ranks
    elements = SMALL_ELEMENTS if kernel.group == "small" else BUCKET_ELEMENTS
    return {
        "Collective name": "allreduce",
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "Group size": size,
        "dtype": "BFloat16",
        "Process Group Name": f"{kernel.group}{first}",
        "Process Group Description": GROUPS[kernel.group],
        "Process Group Ranks": f"[{first}, ..., {first + size - 1}]",
    }


def _x(cat: str, name: str, ts: float, dur: float, where: dict, args: dict | None = None) -> dict:
    out = {"ph": "X", "cat": cat, "name": name, "ts": round(ts, 3), "dur": round(dur, 3)} | where
    return out | ({"args": args} if args else {})


def write(folder: Path, ranks: int, steps: int = 6, layers: int = 4, seed: int = 1) -> Truth:
    """All files of the job."""
    folder.mkdir(parents=True, exist_ok=True)
    truth, random = truth_for(ranks), np.random.default_rng(seed)
    job = list(simulate(truth, steps, layers, random))
    skew = np.repeat(random.uniform(-SKEW_NS, SKEW_NS, -(-ranks // SMALL_GROUP)), SMALL_GROUP)
    drift = random.uniform(-DRIFT, DRIFT, ranks)
    for rank in range(ranks):
        if rank == truth.missing:
            continue
        document = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
            "deviceProperties": [
                {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_017_493_504,
                 "computeMajor": 9, "computeMinor": 0, "numSms": 132}
            ],
            "baseTimeNanoseconds": BASE_NS,
            "displayTimeUnit": "ms",
            "traceEvents": list(events(rank, truth, job, float(skew[rank]), float(drift[rank]))),
        }  # fmt: skip
        data = gzip.compress(json.dumps(document).encode(), 6, mtime=0)
        if rank == truth.cut:
            data = data[: len(data) // 3]
        if rank == truth.garbage:
            data = gzip.compress(b"this is not a recording\n" * 40)
        (folder / f"rank{rank}_trace.json.gz").write_bytes(data)
    (folder.parent / f"{folder.name}.truth.json").write_text(json.dumps(truth.__dict__))
    return truth


def main() -> None:
    """Write a job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(write(options.folder, options.ranks, options.steps, options.layers, options.seed))


if __name__ == "__main__":
    main()
