"""What ``pinchpoint.watch`` costs a step: the time of its ``step()`` call, measured around it.

    python benchmarks/watch_overhead.py [STEPS]

An empty loop with and without the call, in turns; prints the median of the differences.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pinchpoint as pp

ROUNDS = 15


def loop_ns(steps: int, step: Callable[[], None]) -> float:
    """Time of one turn of a loop that only calls ``step``."""
    start_ns = time.perf_counter_ns()
    for _ in range(steps):
        step()
    return (time.perf_counter_ns() - start_ns) / steps


def main() -> None:
    """Measure in rounds."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as folder, pp.watch(out=Path(folder, "run")) as recorder:
        pairs = [(loop_ns(steps, recorder.step), loop_ns(steps, _nothing)) for _ in range(ROUNDS)]
    costs = sorted((with_ns - without_ns) / 1e3 for with_ns, without_ns in pairs)
    print(
        f"{statistics.median(costs):.2f} µs a step (median of {ROUNDS} rounds of {steps} steps; "
        f"{costs[0]:.2f} to {costs[-1]:.2f})"
    )


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main()
