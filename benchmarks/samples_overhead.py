"""What looks at a program's threads cost it: the same work with and without them, in turns.

    python benchmarks/samples_overhead.py [PAIRS [python_loop|products|threads]]

The sampler of ``pinchpoint run`` looks at a loop of Python, at products of matrices, at a program
of eight threads. Each pair does the same work once with looks and once without, in an order that
changes; counted is the process's time on cores, which other programs on the machine change least.
Prints by how much it is longer with looks, as a share of the time that the work took: as many looks
are taken a second whether the program has a core all the time or not. The median of all pairs, and
between what it lies with 95 % confidence (order statistics); then the same of the time on cores.
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
    """A third of a second of bytecode."""
    total = 0
    for i in range(4_000_000):
        total += i % 7


def products() -> None:
    """A third of a second of products, which give the lock up."""
    matrix = np.ones((500, 500))
    for _ in range(33):
        matrix = matrix @ matrix / 500


def threads() -> None:
    """A third of a second of bytecode in eight threads."""
    parts = [threading.Thread(target=lambda: sum(i % 7 for i in range(500_000))) for _ in range(8)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()


def took(work: Callable[[], None], *, looks: bool) -> tuple[float, float]:
    """Seconds of the process on cores for the work, and of the clock."""
    sampler = Sampler(lambda: False)
    if looks:
        sampler.start()
    began = time.process_time(), time.perf_counter()
    work()
    ended = time.process_time(), time.perf_counter()
    sampler.end()
    return ended[0] - began[0], ended[1] - began[1]


def differences(work: Callable[[], None], pairs: int) -> tuple[list[float], list[float]]:
    """What looks add to the time on cores: of the time of the clock, and of that itself."""
    of_clock, of_cores = [], []
    for pair in range(pairs):
        first = bool(pair % 2)
        times = {looks: took(work, looks=looks) for looks in (first, not first)}
        more = times[True][0] - times[False][0]
        of_clock.append(more / times[True][1])
        of_cores.append(more / times[False][0])
    return sorted(of_clock), sorted(of_cores)


def said(found: list[float]) -> str:
    """The median and its interval."""
    reach = NORMAL_95 * len(found) ** 0.5 / 2
    low = max(int(len(found) / 2 - reach), 0)
    high = min(int(len(found) / 2 + reach) + 1, len(found) - 1)
    return f"{found[len(found) // 2]:+.2%} ({found[low]:+.2%} to {found[high]:+.2%})"


def main() -> int:
    """Print one line a kind of work; returns the exit code."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 101
    kinds = {work.__name__: work for work in (python_loop, products, threads)}
    for name in sys.argv[2:] or kinds:
        kinds[name]()
        of_clock, of_cores = differences(kinds[name], pairs)
        print(f"{name}: {said(of_clock)}; of the time on cores {said(of_cores)}", flush=True)
    print(f"load: {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
