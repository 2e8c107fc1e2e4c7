"""When to open a recording: at steady state, when steps became slower, and not while compiling."""

import os
import sys
import threading
from dataclasses import field
from typing import Protocol

from pinchpoint.capture.process.step_clock import (
    FIRST_STEPS,
    STEADY_LONG_STEPS,
    StepClock,
    median,
)
from pinchpoint.capture.samples.stacks import frames_of_threads, stack_of
from pinchpoint.capture.settings import Kind, Settings
from pinchpoint.frozen import dataclass

PATIENCE_STEPS = 200  # record at last although steps have not become steady
PATIENCE_NS = 120_000_000_000  # the same for long steps: two minutes
PATIENCE_OF_LONG_NS = 15_000_000_000  # and where a program may have few of them: it may end soon
FEWEST_EDGES = 3  # an interval after the first, which is never ordinary

HISTORY_STEPS = 200  # what steps were like
RECENT_STEPS = 10  # what they are like now
LOOK_EVERY_STEPS = 10  # each look has only new steps
SLOWER_RATIO = 1.3  # against the history; ordinary noise of a median of ten stays far below
LEAST_EXTRA_NS = 200_000  # a step of microseconds doubles for many reasons, none worth a recording
COOLDOWN_STEPS = 500  # between two recordings
MOST_RECORDINGS = 5  # of one program: a disk is not for traces alone


class Policy(Protocol):
    """Decides at every edge."""

    steady: bool | None  # whether steps were steady when it said yes; None: does not look at that
    warm_up: int | None  # steps of the profiler's warming up; None: until a stall is not felt

    @property
    def repeats(self) -> bool:
        """Whether another recording may follow."""
        ...

    def ready(self, clock: StepClock) -> bool:
        """Whether to record now."""
        ...


@dataclass
class AtSteadyState:
    """Once, when steps no longer get faster and nothing was compiled, or after long enough."""

    after_steps: int | None = None  # a fixed number of steps instead
    steady: bool | None = None
    repeats: bool = False
    warm_up: int | None = None
    _compiles: int = 0

    def ready(self, clock: StepClock) -> bool:
        """Whether to record now."""
        if self.after_steps is not None:
            return clock.edges >= self.after_steps
        compiles = compile_count()
        compiled, self._compiles = compiles != self._compiles, compiles
        if clock.steady() and not compiled:
            self.steady = True
            return True
        few = clock.long_steps and len(clock.undisturbed(FIRST_STEPS)) >= 2 * STEADY_LONG_STEPS
        patience_ns = PATIENCE_OF_LONG_NS if few else PATIENCE_NS
        tired = clock.edges >= PATIENCE_STEPS or clock.elapsed_ns >= patience_ns
        if tired and clock.edges >= FEWEST_EDGES:
            self.steady = False
            return True
        return False


@dataclass
class WhenSlower:
    """When the last steps took clearly longer than the steps before them; several times."""

    slower_ratio: float = SLOWER_RATIO
    steady: bool | None = None
    repeats: bool = True
    warm_up: int | None = None
    triggers: list[str] = field(default_factory=list)  # in words, why each recording was made
    _quiet_until: int = HISTORY_STEPS
    _usual_ns: int = 0

    def ready(self, clock: StepClock) -> bool:
        """Whether to record now."""
        count = len(clock.interval_ns)
        if count < self._quiet_until or count % LOOK_EVERY_STEPS:
            return False
        recent = median(clock.interval_ns[count - RECENT_STEPS :])
        if not self._usual_ns or count % HISTORY_STEPS == 0:
            past = clock.interval_ns[max(0, count - HISTORY_STEPS) : count - RECENT_STEPS]
            usual = median(past)
            # A slow decline must not move the mark along with it.
            self._usual_ns = min(usual, self._usual_ns) if self._usual_ns else usual
        mark_ns = max(self.slower_ratio * self._usual_ns, self._usual_ns + LEAST_EXTRA_NS)
        if recent < mark_ns or len(self.triggers) >= MOST_RECORDINGS:
            return False
        self._quiet_until = count + COOLDOWN_STEPS
        self.triggers.append(
            f"after {count} steps, a step took {recent / 1e6:.4g} ms, "
            f"{recent / self._usual_ns:.2f} times as long as before"
        )
        return True


@dataclass
class Cycles:
    """As ``torch.profiler.schedule``: skip, then so often wait, warm up and record."""

    skip_first: int
    wait: int
    warm_up: int | None
    active: int
    repeat: int
    steady: bool | None = None
    _made: int = 0

    @property
    def repeats(self) -> bool:
        """Whether another cycle follows."""
        return self._made < self.repeat

    def ready(self, clock: StepClock) -> bool:
        """Whether the profiler should begin to warm up now."""
        cycle = self.wait + (self.warm_up or 0) + self.active
        if not self.repeats or clock.edges < self.skip_first + self._made * cycle + self.wait:
            return False
        self._made += 1
        return True


# A model may be called once, and a step be marked, before other work.
EARLY_EDGES = {"optimizer": 1, "module": 2, "graph": 2, "call": 2, "loop": 1}


def early_is_due(settings: Settings, edges: int, steps_by: str | None) -> bool:
    """Whether the first step that is not cold begins, and may be all that there will be."""
    wanted = settings.names and settings.after_steps is None
    return wanted and edges == EARLY_EDGES.get(steps_by or "")


def follows_early(kind: Kind, *, in_job: bool) -> Kind | None:
    """The early window after this one. Bare steps of a job come before those with names."""
    if kind == "trial":
        return "first" if in_job else "early"
    return "early" if kind == "first" else None


def policy_of(settings: Settings) -> AtSteadyState | Cycles:
    """What the settings ask for."""
    if not settings.repeat:
        return AtSteadyState(settings.after_steps)
    asked = settings
    return Cycles(asked.skip_first, asked.wait, asked.warmup, asked.steps, asked.repeat)


def compile_count() -> int:
    """Graphs that torch.compile has made so far in this process; 0 if it was never used."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    try:
        counters = getattr(dynamo, "counters", None)
        return int(counters["stats"]["unique_graphs"]) if counters else 0
    except (KeyError, TypeError):
        return 0


# A recording made while a program imports or compiles shows work that is done once, and no kernels
# of the steps that follow.
_IMPORTING = "<frozen importlib._bootstrap>"
# Files whose functions run only while something is compiled, and functions in files that run at
# other times too.
_COMPILING_FILES = (
    "torch/_dynamo/convert_frame.py",
    "torch/_inductor/async_compile.py",
    "triton/compiler/compiler.py",
    "jax/_src/compiler.py",
)
_COMPILING_FUNCTIONS = {
    "torch/_inductor/compile_fx.py": "compile",
    "torch/_inductor/runtime/triton_heuristics.py": "autotune_to_one_config",
}


def imports() -> bool:
    """Whether the main thread is importing: the program has not come to its work yet."""
    places = stack_of(threading.main_thread().ident or 0)
    return any(code.co_filename == _IMPORTING for code, _ in places)


def compiles() -> bool:
    """Whether any thread compiles for torch.compile, triton or jax right now."""
    return any(
        _is_compiling(code.co_filename, code.co_name)
        for thread in tuple(frames_of_threads())
        for code, _ in stack_of(thread)
    )


def _is_compiling(filename: str, function: str) -> bool:
    if filename.endswith(_COMPILING_FILES):
        return function != "<module>"
    for ending, part in _COMPILING_FUNCTIONS.items():
        if filename.endswith(ending) and part in function:
            return True
    return False


def is_helper() -> bool:
    """Whether this is a worker of a pool or of a loader, and no rank of a job."""
    processes = sys.modules.get("multiprocessing.process")
    child = processes is not None and processes.parent_process() is not None
    return child and "RANK" not in os.environ


class CompileWatch:
    """Tells whether anything was compiled since it was last asked."""

    def __init__(self) -> None:
        self._count = compile_count()

    def busy(self) -> bool:
        """Whether something is being compiled, or was since the last question."""
        count = compile_count()
        changed, self._count = count != self._count, count
        return changed or compiles()


def optimizer_exists() -> bool:
    """Whether the program has made a torch optimizer, whose steps are then to be expected.

    torch wraps the ``step`` of a class at the first instance and marks it as ``hooked``.
    """
    module = sys.modules.get("torch.optim.optimizer")
    base = getattr(module, "Optimizer", None)
    kinds = [base] if base is not None else []
    while kinds:
        kind = kinds.pop()
        if getattr(getattr(kind, "step", None), "hooked", False):
            return True
        kinds += kind.__subclasses__()
    return False
