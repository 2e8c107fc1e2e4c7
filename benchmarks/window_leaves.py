"""What a recording of torch leaves behind in a program that goes on: launches that cost more.

    python benchmarks/window_leaves.py    (needs a GPU; some 20 seconds)

CUPTI stays loaded after a recording unless ``TEARDOWN_CUPTI=1`` is set when it ends. Printed are a
step of many small launches and one launch alone: before a recording, after one, after a teardown.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

STEPS, LAUNCHES, TIMED = 24, 2000, 2000  # LAUNCHES of a step; TIMED one after the other


def main() -> int:
    """Print a line a phase."""
    if not torch.cuda.is_available():
        print(__doc__)
        return 2
    os.environ["TEARDOWN_CUPTI"] = "0"
    values = [torch.ones(8, device="cuda") for _ in range(LAUNCHES)]

    def step() -> None:
        for value in values:
            value.add_(1.0)

    _phase("before", step)
    _record(step, teardown=False)
    _phase("after a recording", step)
    _record(step, teardown=True)
    _phase("after a teardown", step)
    return 0


def _record(step: Callable[[], None], *, teardown: bool) -> None:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
        step()
        torch.cuda.synchronize()
        os.environ["TEARDOWN_CUPTI"] = str(int(teardown))
    time.sleep(0.3)  # another thread does it


def _phase(name: str, step: Callable[[], None]) -> None:
    took = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        took.append(time.perf_counter() - start)
    torch.cuda.synchronize()
    value, start = torch.ones(8, device="cuda"), time.perf_counter()
    for _ in range(TIMED):
        value.add_(1.0)
    torch.cuda.synchronize()
    launch_us = 1e6 * (time.perf_counter() - start) / TIMED
    print(f"{name:20} step {1e3 * statistics.median(took):.1f} ms, a launch {launch_us:.2f} µs")


if __name__ == "__main__":
    sys.exit(main())
