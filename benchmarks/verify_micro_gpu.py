"""Checks ``pp.time`` on a CUDA device against other timers, and against itself.

    python benchmarks/verify_micro_gpu.py [--json OUT]

1. A handful of operations, timed by ``pp.time``, ``triton.testing.do_bench`` and
   ``torch.utils.benchmark``. Where those are right the medians must agree within 2 %; where they
   are not (launch-bound, another cache state) the difference must have the sign that theory says.
2. A/A: the same operation timed again and again; intervals must cover the overall median.
3. Planted: a kernel with 5 % more work must be seen as slower, with intervals that do not touch.

What each timer measures: ``do_bench`` flushes a 256 MB buffer before each call and reads events
around it, so it is compared with ``cold``; for kernels of a few microseconds its events also
catch the launch gap. ``torch.utils.benchmark`` times blocks of calls with a host clock and a
synchronisation, caches hot, so it is compared with ``batched``; for launch-bound calls it sees
the host, which is compared with ``issue_ns``.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pinchpoint.bench.micro.document import document
from pinchpoint.bench.micro.stopping import StoppingRule
from pinchpoint.bench.micro.time_function import time_function
from pinchpoint.bench.micro.timing import Timing

AGREE = 0.02
REPEATS = 20
RULE = StoppingRule(precision=0.002, most_seconds=1.5)


@dataclass(frozen=True)
class Row:
    """One operation by the three timers; microseconds."""

    name: str
    batched_us: float
    hot_us: float
    cold_us: float
    issue_us: float
    host_bound: bool
    do_bench_us: float | None
    torch_timer_us: float
    cold_against_do_bench: float | None
    batched_against_torch_timer: float
    remarks: list[str]
    verdict: str


def operations() -> dict[str, Callable[[], Any]]:
    """Compute-bound, memory-bound larger and smaller than the L2, and launch-bound."""
    half = {"device": "cuda", "dtype": torch.bfloat16}
    a, b = torch.randn(4096, 4096, **half), torch.randn(4096, 4096, **half)
    large = torch.randn(256 << 20, **half)
    small = torch.randn(4 << 20, **half)
    tiny = torch.randn(64, 64, **half)
    rows = torch.randn(8192, 4096, **half)
    q = torch.randn(4, 16, 2048, 128, **half)
    return {
        "gemm 4096^3 bf16": lambda: torch.mm(a, b),
        "add 512 MiB (beyond L2)": lambda: torch.add(large, 1.0),
        "add 8 MiB (inside L2)": lambda: torch.add(small, 1.0),
        "softmax 8192x4096": lambda: torch.softmax(rows, -1),
        "attention 4x16x2048x128": lambda: torch.nn.functional.scaled_dot_product_attention(
            q, q, q
        ),
        "mm 64x64 (launch-bound)": lambda: torch.mm(tiny, tiny),
        "add 64x64 (launch-bound)": lambda: torch.add(tiny, 1.0),
    }


def do_bench_us(fn: Callable[[], Any]) -> float | None:
    """Median by triton, None if triton is not installed."""
    try:
        from triton.testing import do_bench
    except ImportError:
        return None
    return 1e3 * float(do_bench(fn, warmup=100, rep=500, return_mode="median"))


def torch_timer_us(fn: Callable[[], Any]) -> float:
    """Median by torch.utils.benchmark."""
    from torch.utils.benchmark import Timer

    timer = Timer("fn()", globals={"fn": fn})
    return 1e6 * float(timer.blocked_autorange(min_run_time=1.0).median)


def compare(name: str, fn: Callable[[], Any]) -> Row:
    """Time one operation three ways."""
    timing = time_function(fn, name=name, rule=RULE)
    triton_us, host_us = do_bench_us(fn), torch_timer_us(fn)
    cold_us, batched_us = timing.cold.median_ns / 1e3, timing.batched.median_ns / 1e3
    against_triton = None if triton_us is None else cold_us / triton_us - 1
    against_torch = batched_us / host_us - 1
    return Row(
        name=name,
        batched_us=batched_us,
        hot_us=timing.hot.median_ns / 1e3,
        cold_us=cold_us,
        issue_us=timing.batched.issue_ns / 1e3,
        host_bound=timing.host_bound,
        do_bench_us=triton_us,
        torch_timer_us=host_us,
        cold_against_do_bench=against_triton,
        batched_against_torch_timer=against_torch,
        remarks=[r.id for r in timing.remarks] + list(timing.invalid_reasons),
        verdict=_verdict(timing, against_triton, against_torch, host_us),
    )


def _verdict(timing: Timing, triton: float | None, torch_ratio: float, host_us: float) -> str:
    if timing.host_bound:
        paced = abs(timing.batched.issue_ns / 1e3 / host_us - 1)
        return f"launch-bound: the host timer sees the host ({paced:.0%} from our issue time)"
    parts = []
    if triton is not None:
        parts.append("do_bench " + ("agrees" if abs(triton) <= AGREE else f"differs {triton:+.1%}"))
    agrees = abs(torch_ratio) <= AGREE
    parts.append("torch timer " + ("agrees" if agrees else f"differs {torch_ratio:+.1%}"))
    return ", ".join(parts)


def again_and_again() -> dict[str, Any]:
    """A/A: how many of the intervals cover the median of all medians."""
    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    timings = [time_function(torch.mm, a, a, rule=RULE, cold=False) for _ in range(REPEATS)]
    medians = np.array([t.median_ns for t in timings])
    middle = float(np.median(medians))
    covered = [t.batched.ci95_ns[0] <= middle <= t.batched.ci95_ns[1] for t in timings]
    within = np.abs(medians / middle - 1)
    return {
        "repeats": REPEATS,
        "median_us": middle / 1e3,
        "intervals_that_cover": int(sum(covered)),
        "worst_deviation": float(within.max()),
    }


def planted() -> dict[str, Any]:
    """5 % more rows in a product, and in a memory-bound kernel: both must be seen."""
    half = {"device": "cuda", "dtype": torch.bfloat16}
    weight = torch.randn(4096, 4096, **half)
    results = {}
    for name, base in (("gemm", 20 * 1024), ("add", 20 * 8192)):
        first, second = (torch.randn(n, 4096, **half) for n in (base, base * 21 // 20))
        run = (lambda x: x @ weight) if name == "gemm" else (lambda x: x + 1.0)
        a, b = (time_function(run, x, rule=RULE, cold=False) for x in (first, second))
        results[name] = {
            "ratio": b.median_ns / a.median_ns - 1,
            "found": b.batched.ci95_ns[0] > a.batched.ci95_ns[1],
        }
    return results


def main() -> None:
    """Run the three checks and print them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    rows = [compare(name, fn) for name, fn in operations().items()]
    for row in rows:
        print(
            f"{row.name:26} batched {row.batched_us:9.2f}  hot {row.hot_us:9.2f}  cold "
            f"{row.cold_us:9.2f}  issue {row.issue_us:7.2f}  do_bench "
            f"{row.do_bench_us or float('nan'):9.2f}  torch {row.torch_timer_us:9.2f} us | "
            f"{row.verdict} | {', '.join(row.remarks)}"
        )
    repeated, slower = again_and_again(), planted()
    print(f"A/A: {repeated}")
    print(f"planted 5 %: {slower}")
    one = document(time_function(operations()["gemm 4096^3 bf16"], name="gemm", rule=RULE))
    if options.json:
        text = {"rows": [asdict(r) for r in rows], "aa": repeated, "planted": slower}
        options.json.write_text(json.dumps(text, indent=1) + "\n")
    print(f"clock of a document: {one.modes['batched'].sm_clock_mhz} MHz, {one.unknown}")


if __name__ == "__main__":
    main()
