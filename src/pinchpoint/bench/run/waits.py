"""How threads of a program wait for each other where neighbours on the machine take its CPUs.

A pool of threads (OpenMP, OpenBLAS) spins while it waits: on CPUs of its own that saves the time to
wake. Where others take the CPUs it burns the time that the thread waited for would need: a step of
two threads took 315 to 1,176 ms of CPU time so at load 3 to 6 on 2 CPUs, and 115 to 156 ms with
threads that sleep. So pairs are measured with sleeping threads there, both sides alike.
"""

import os
from collections.abc import Mapping, Sequence

from pinchpoint.bench.metrics import RunMetrics
from pinchpoint.bench.run.validity import is_busy

# What the OpenMP of GCC, of Intel and of LLVM reads, and OpenBLAS (2 to the power of it, in cycles;
# 4 is the least that it takes).
_ASLEEP = {"OMP_WAIT_POLICY": "passive", "OPENBLAS_THREAD_TIMEOUT": "4"}
_SAID_BY_USER = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OPENBLAS_THREAD_TIMEOUT")
# Of a step: on a quiet machine threads wait for a CPU for less than a hundredth of it.
_WAITED_RATIO = 0.1

NOTE = (
    "other programs used the CPUs, so that all runs had OMP_WAIT_POLICY=passive: threads that wait"
    " for each other sleep and do not spin; set it to active yourself to measure them spinning"
)


def asleep(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` with pools of threads that sleep while they wait."""
    return dict(environment) | _ASLEEP


def should_sleep(so_far: Sequence[RunMetrics], *environments: Mapping[str, str]) -> bool:
    """Where others take the CPUs, unless an environment says itself how threads wait."""
    return may_sleep(*environments) and disturbed(so_far)


def may_sleep(*environments: Mapping[str, str]) -> bool:
    """Whether no environment says itself how threads wait."""
    return not any(name in said for said in environments for name in _SAID_BY_USER)


def disturbed(so_far: Sequence[RunMetrics]) -> bool:
    """Whether others take the CPUs: as the load says before the first run, and the steps of runs
    after it. Once they do, all later runs are measured as on a busy machine."""
    if not so_far:
        return is_busy(os.getloadavg()[0], os.cpu_count())
    return any(run.threads_sleep or run.at_once or _waited(run) for run in so_far)


def _waited(run: RunMetrics) -> bool:
    """Whether the median step waited for a CPU; where no steps are known, the process."""
    wall = own = None
    if run.steps is not None:
        wall, own = run.steps.step_time_ms.median, run.steps.own_ms
    elif run.work is not None:
        wall, own = run.work.wall_s, run.work.own_s
    return bool(wall and own is not None and wall * (1 - _WAITED_RATIO) > own)
