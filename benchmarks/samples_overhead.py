"""What looks at a program's threads cost it: the same work with and without them, in turns.

    python benchmarks/samples_overhead.py [PAIRS]

The sampler of ``pinchpoint run`` looks at a loop of Python, at products of matrices, at a program
of eight threads. Each pair does the same work once with looks and once without, in an order that
changes; counted is the process's time on cores, which other programs on the machine change least.
Prints the median difference, and between what it lies with 95 % confidence (order statistics).
"""

import os
import sys
import threading
import time
from collections.abc import Callable

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # threads that spin would be counted, and differ by more than a look

import numpy as np  # noqa: E402

from pinchpoint.capture.samples.sampler import Sampler  # noqa: E402

# Order statistics of the median, 95 % on both sides: the distribution is binomial.
NORMAL_95 = 1.96


def python_loop() -> None:
    """About a second of bytecode."""
    total = 0
    for i in range(12_000_000):
        total += i % 7


def products() -> None:
    """About a second of products, which give the lock up."""
    matrix = np.ones((500, 500))
    for _ in range(100):
        matrix = matrix @ matrix / 500


def threads() -> None:
    """About a second of bytecode in eight threads."""
    parts = [
        threading.Thread(target=lambda: sum(i % 7 for i in range(1_500_000))) for _ in range(8)
    ]
    for part in parts:
        part.start()
    for part in parts:
        part.join()


def on_cores_s(work: Callable[[], None], *, looks: bool) -> float:
    """Time of the process on cores for the work."""
    sampler = Sampler(lambda: False)
    began = time.process_time()
    if looks:
        sampler.start()
    work()
    sampler.end()
    return time.process_time() - began


def differences(work: Callable[[], None], pairs: int) -> list[float]:
    """By how much looks make it longer, pair by pair."""
    found = []
    for pair in range(pairs):
        first = bool(pair % 2)
        times = {looks: on_cores_s(work, looks=looks) for looks in (first, not first)}
        found.append(times[True] / times[False] - 1)
    return sorted(found)


def main() -> int:
    """Print one line a kind of work; returns the exit code."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    for work in (python_loop, products, threads):
        work()
        found = differences(work, pairs)
        reach = NORMAL_95 * pairs**0.5 / 2
        low, high = int(pairs / 2 - reach), min(int(pairs / 2 + reach) + 1, pairs - 1)
        middle = found[pairs // 2]
        print(
            f"{work.__name__}: {middle:+.2%} ({found[low]:+.2%} to {found[high]:+.2%})", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
