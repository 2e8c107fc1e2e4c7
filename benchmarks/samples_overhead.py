"""What looks at a program's threads cost it, in a way that other programs on the machine hardly
change: by time on a core.

    python benchmarks/samples_overhead.py [PAIRS [python_loop|products|threads]]

The sampler of ``pinchpoint run`` looks at a loop of Python, at products of matrices, at a program
of eight threads. Printed is how long the looking thread itself was on a core, as a share of the
time that the work took; while it is, it holds the interpreter's lock, so that the program cannot
lose more to it, but for what looks leave behind in the caches. That is measured in pairs: each does
the same work once with looks and once without, in an order that changes, and the threads of the
work are timed on their cores, without the looking one. Printed is the median of all pairs, and
between what it lies with 95 % confidence (order statistics). Exit code 1 where the looking thread
takes 1 %.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # threads that spin would be counted, and differ by more than a look

import numpy as np  # noqa: E402

from pinchpoint.capture.samples.sampler import Sampler  # noqa: E402

# Order statistics of the median, 95 % on both sides: the distribution is binomial.
NORMAL_95 = 1.96
MOST_RATIO = 0.01  # of the time of the work, that looking may take


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


@dataclass(frozen=True)
class Took:
    """Seconds: of the work's own threads on cores, of the looking one, and of the clock."""

    work: float
    looking: float
    clock: float


def took(work: Callable[[], None], *, looks: bool) -> Took:
    """One turn of the work."""
    sampler = Sampler(lambda: False)
    began = time.process_time(), time.perf_counter()
    if looks:
        sampler.start()
    work()
    sampler.end()
    ended = time.process_time(), time.perf_counter()
    looking = sampler.pace.cost_ns / 1e9
    return Took(ended[0] - began[0] - looking, looking, ended[1] - began[1])


def pairs_of(work: Callable[[], None], pairs: int) -> list[tuple[Took, Took]]:
    """Each with looks and without."""
    found = []
    for pair in range(pairs):
        first = bool(pair % 2)
        times = {looks: took(work, looks=looks) for looks in (first, not first)}
        found.append((times[True], times[False]))
    return found


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
    dearest = 0.0
    for name in sys.argv[2:] or kinds:
        kinds[name]()
        found = pairs_of(kinds[name], pairs)
        looking = sum(a.looking for a, _ in found) / sum(a.clock for a, _ in found)
        beside = said(sorted(a.work / b.work - 1 for a, b in found))
        print(f"{name}: looking {looking:.2%} of the time; the work itself {beside}", flush=True)
        dearest = max(dearest, looking)
    print(f"load: {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    return int(dearest >= MOST_RATIO)


if __name__ == "__main__":
    sys.exit(main())
