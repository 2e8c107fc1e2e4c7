"""Two programs side by side, each on half of the CPUs, which are exchanged all the time.

A CPU gets faster and slower by itself, by what its neighbours do, and threads of a program land now
on one CPU, now on several: pairs of the same program of two threads differed by -19 to +28 % on
2 CPUs of a virtual machine, in wall time and in CPU time. On halves that are exchanged every 50 ms
both meet the same CPUs at the same time, and threads wait for threads on CPUs of their own. CPU
times of eight seconds each differed so with a standard deviation of 1.4 to 1.9 %, against 8 % side
by side with all CPUs for both, and both did seven times the work (load 13 to 20 on 2 CPUs, threads
that sleep while they wait). What a program gains by more CPUs than the half is not seen.

The exchange begins with the first step, as programs ask when they start how many CPUs there are.
"""

import mmap
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pinchpoint.inside.meeting import GO, LENGTH, THERE

EXCHANGED_EVERY_S = (
    0.05  # short beside a second, in which a CPU gets slower; a cache is full in 1 ms
)
_LOOKS_EVERY_S = 0.005  # importing what a program needs takes a hundred times as long
_FILE = "meeting"


def halves() -> tuple[set[int], set[int]] | None:
    """The CPUs of each program; None where there are fewer than two, or they cannot be given."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    cpus = sorted(os.sched_getaffinity(0))
    half = len(cpus) // 2
    return (set(cpus[: 2 * half : 2]), set(cpus[1 : 2 * half : 2])) if half else None


@dataclass(eq=False)
class Side:
    """One of the two programs."""

    swap: "Swap"
    file: Path
    process: int = 0
    ended: bool = False
    _said: "mmap.mmap | None" = field(default=None, repr=False)

    def prepare(self) -> None:
        """Before the program starts: where it says that its first step begins."""
        self.file.write_bytes(bytes(LENGTH))
        with self.file.open("r+b") as file:
            self._said = mmap.mmap(file.fileno(), LENGTH)

    def begin(self, process: int) -> None:
        """The program runs."""
        self.process = process
        self.swap.begin()

    @property
    def is_there(self) -> bool:
        """Whether its first step begins, or it has ended without one."""
        return self.ended or bool(self._said and self._said[THERE])

    def go(self) -> None:
        """Its first step may begin."""
        if self._said:
            self._said[GO] = 1

    def move(self, cpus: Iterable[int]) -> None:
        """All threads of the program, and of those that it started, to these CPUs."""
        for thread in _threads(self.process):
            with suppress(OSError):  # it has ended
                os.sched_setaffinity(thread, cpus)


class Swap:
    """Of two programs, from the first step of both until one has ended."""

    def __init__(self) -> None:
        self._sides: list[Side] = []
        self._lock, self._running = threading.Lock(), 0
        self.exchanges = 0

    def side(self, folder: Path) -> Side:
        """For the program that is measured in this folder."""
        side = Side(self, folder / _FILE)
        self._sides.append(side)
        return side

    def begin(self) -> None:
        """One more of the two runs."""
        with self._lock:
            self._running += 1
            both = self._running == 2
        if both:
            threading.Thread(target=self._exchange, daemon=True).start()

    def _exchange(self) -> None:
        a, b = self._sides
        while not (a.is_there and b.is_there):
            time.sleep(_LOOKS_EVERY_S)
        cpus = halves()
        free = cpus is not None and not (a.ended or b.ended) and _are_free(a, b)
        self._move(a, b, *(cpus if cpus and free else ()))
        a.go()
        b.go()
        if cpus is None or not free:
            return
        while not (a.ended or b.ended):
            time.sleep(EXCHANGED_EVERY_S)
            cpus = cpus[1], cpus[0]
            self._move(a, b, *cpus)
            self.exchanges += 1
        for side in (a, b):
            if not side.ended:
                side.move(os.sched_getaffinity(0))

    def _move(self, a: Side, b: Side, *cpus: set[int]) -> None:
        for side, half in zip((a, b), cpus, strict=False):
            side.move(half)


def _are_free(*sides: Side) -> bool:
    """Whether their threads may run on all CPUs that we may: who pins threads means it."""
    ours = os.sched_getaffinity(0)
    try:
        return all(os.sched_getaffinity(t) == ours for s in sides for t in _threads(s.process))
    except OSError:  # a thread ended meanwhile
        return True


def _threads(process: int) -> Iterator[int]:
    """Of a process and of all that it started, by number."""
    try:
        tasks = [int(task.name) for task in Path(f"/proc/{process}/task").iterdir()]
    except OSError:
        return
    for task in tasks:
        yield task
        with suppress(OSError):
            children = Path(f"/proc/{process}/task/{task}/children").read_text().split()
            for child in children:
                yield from _threads(int(child))
