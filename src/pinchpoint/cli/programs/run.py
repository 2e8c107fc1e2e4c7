"""Run a program, record a few of its steady steps, and diagnose them."""

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import note
from pinchpoint.cli.programs._ended import say, say_diagnosis, say_others
from pinchpoint.errors import PinchpointError, UsageError

if TYPE_CHECKING:
    from pinchpoint.capture.launch.launcher import Ended
    from pinchpoint.capture.settings import Settings

Switch = Parameter(negative="")
MEBIBYTE = 1 << 20
COUNTED_KERNELS = 3  # of run --ncu: each costs some forty replays of every shape
# Options that are followed by a value; a test compares them with the signature below.
WITH_VALUE = frozenset(
    {
        "-o",
        "--out",
        "--steps",
        "--ranks",
        "--after-steps",
        "--after-seconds",
        "--seconds",
        "--max-size",
        "--python",
        "--skip-first",
        "--wait",
        "--warmup",
        "--active",
        "--repeat",
    }
)


MOST_CYCLES = 100  # a disk is not for traces alone


@dataclass(frozen=True)
class Cycles:
    """Cycles of the profiler, as of ``torch.profiler.schedule``, with the options given beside.

    Parameters
    ----------
    skip_first
        Steps before the first cycle.
    wait
        Steps of a cycle in which nothing is done.
    warmup
        Steps of a cycle in which the profiler warms up (at least 1).
    active
        Steps of a cycle that are recorded (default: --steps).
    repeat
        Cycles (default: 1). Each is a file of its own; the newest is diagnosed.
    """

    skip_first: int | None = None
    wait: int | None = None
    warmup: int | None = None
    active: int | None = None
    repeat: int | None = None

    @property
    def asked(self) -> bool:
        """Whether any of them was given."""
        return any(value is not None for value in astuple(self))

    def check(self) -> None:
        """Raise UsageError for what makes no sense."""
        given = [value for value in astuple(self) if value is not None]
        if any(value < 0 for value in given) or 0 in (self.active, self.repeat):
            raise UsageError("--active and --repeat must be positive, the others not negative")
        if (self.repeat or 0) > MOST_CYCLES:
            raise UsageError(f"--repeat: at most {MOST_CYCLES}", hint="--wait 100 spreads them")


NO_CYCLES = Cycles()


def separate(words: Sequence[str]) -> list[str]:
    """Put ``--`` before the program's own words, so that its options are never taken for ours."""
    position = 0
    while position < len(words):
        word = words[position]
        if word == "--":
            return list(words)
        if not word.startswith("-") or word == "-m":
            return [*words[:position], "--", *words[position:]]
        position += 2 if word in WITH_VALUE else 1
    return list(words)


def command(  # noqa: PLR0913 - one argument an option
    *program: Annotated[str, Parameter(allow_leading_hyphen=True)],
    out: Annotated[Path | None, Parameter(alias="-o")] = None,
    steps: int | None = None,
    stacks: Annotated[bool, Switch] = False,
    shapes: Annotated[bool, Switch] = False,
    memory: Annotated[bool, Switch] = False,
    modules: Annotated[bool, Switch] = False,
    flops: Annotated[bool, Switch] = False,
    snapshot: Annotated[bool, Switch] = False,
    nvtx: Annotated[bool, Switch] = False,
    nsys: Annotated[bool, Switch] = False,
    ncu: Annotated[bool, Switch] = False,
    hooks_only: Annotated[bool, Switch] = False,
    bare: Annotated[bool, Switch] = False,
    ranks: str = "auto",
    after_steps: int | None = None,
    after_seconds: float | None = None,
    seconds: float = 2.0,
    cycles: Annotated[Cycles, Parameter(name="*")] = NO_CYCLES,
    max_size: int = 512,
    python: Path | None = None,
    no_diff: Annotated[bool, Switch] = False,
    no_diagnose: Annotated[bool, Switch] = False,
) -> int:
    """Run a program without changing it, and say why its steps take so long.

    ``pinchpoint run [options] train.py …``, ``… -m package …`` or ``… torchrun … train.py``.
    Output, input and exit code are the program's own; what Pinchpoint has to say goes to standard
    error after it has ended. Everything is kept in a run folder.

    Parameters
    ----------
    program
        The script, ``-m`` and a module, or any command that starts Python.
    out
        The run folder (default: a new one below pinchpoint-runs).
    steps
        Complete steps to record once they are steady (default: 6, or up to 32 where many loader
        workers or short epochs ask for them).
    stacks
        Also record Python stacks: findings name source lines; costs time where the host limits.
    shapes
        Also record the shapes and types of inputs.
    memory
        Also record allocations.
    modules
        Also record the module of each operator, which Python stacks tell: the same as --stacks.
    flops
        Also record estimated floating-point operations.
    snapshot
        Also keep the device allocator's history, for pinchpoint memory.
    nvtx
        Emit NVTX ranges for steps.
    nsys
        Record with Nsight Systems instead of torch.profiler.
    ncu
        Afterwards run it again under Nsight Compute, which counts in the three kernels that decide.
    hooks_only
        Time steps and data waits and sample the machine; record nothing.
    bare
        One window without stacks, shapes and modules: findings have no source lines.
    ranks
        Which ranks of a distributed job record: auto, all, or numbers such as 0,3.
    after_steps
        Record after so many steps instead of at steady state.
    after_seconds
        For programs without steps: record after so many seconds of work.
    cycles
        Cycles as of torch.profiler.schedule.
    seconds
        For programs without steps: how long to record.
    max_size
        End the recording early once the program has grown by so many MiB.
    python
        The interpreter of the program's environment, such as .venv/bin/python. Nothing is installed
        there; it has to be Python 3.11 or later.
    no_diff
        Do not keep uncommitted changes of the git tree.
    no_diagnose
        Record only.
    """
    from pinchpoint.capture.launch.launcher import command_line
    from pinchpoint.capture.settings import STEPS, Settings

    if (steps is not None and steps < 1) or seconds <= 0 or max_size < 1:
        raise UsageError("--steps, --seconds and --max-size must be positive")
    cycles.check()
    steps = cycles.active or steps
    settings = Settings(
        folder="",
        steps=steps or STEPS,
        whole_round=steps is None and not cycles.asked,
        skip_first=cycles.skip_first or 0,
        wait=cycles.wait or 0,
        warmup=cycles.warmup or 1,
        repeat=(cycles.repeat or 1) if cycles.asked else 0,
        stacks=stacks or modules,
        shapes=shapes,
        memory=memory,
        flops=flops,
        snapshot=snapshot,
        bounded=not (stacks or shapes or memory or modules or flops or cycles.asked),
        names=not (bare or nsys or hooks_only or cycles.asked),
        samples=not (nsys or hooks_only),
        nvtx=nvtx or nsys,
        ranks=ranks,
        after_steps=after_steps,
        after_s=after_seconds,
        seconds=seconds,
        max_bytes=max_size * MEBIBYTE,
        tool="nsys" if nsys else "none" if hooks_only else "torch",
        launcher_pid=os.getpid(),
    )
    words = command_line(program, _interpreter(python))
    return _run(program, words, out, settings, diff=not no_diff, diagnose=not no_diagnose, ncu=ncu)


def _interpreter(python: Path | None) -> str:
    """Which Python a script runs with; UsageError if it cannot be started."""
    if python is None:
        return sys.executable
    if (found := shutil.which(str(python))) is None:
        raise UsageError(
            f"--python {python}: no such program", hint="--python .venv/bin/python, or python3.12"
        )
    return found


def _run(
    program: Sequence[str],
    words: Sequence[str],
    out: Path | None,
    settings: "Settings",
    *,
    diff: bool,
    diagnose: bool,
    ncu: bool,
) -> int:
    from dataclasses import replace

    from pinchpoint.capture.launch import collect
    from pinchpoint.capture.launch.folder import new_run_folder, write_diff
    from pinchpoint.capture.launch.launcher import NotStarted, label, launch
    from pinchpoint.capture.launch.nvidia import require
    from pinchpoint.monitor.environment import environment
    from pinchpoint.run_folder.layout import ENVIRONMENT_FILE, write_json

    for tool in ("nsys",) * (settings.tool == "nsys") + ("ncu",) * ncu:
        require(tool)  # before a folder is made for nothing
    folder = new_run_folder(out, label(program))
    settings = replace(settings, folder=str(folder))
    try:
        try:
            collect.begin(folder, words, settings)
            write_json(folder / ENVIRONMENT_FILE, environment(program=words))
            if diff:
                write_diff(folder)
        except OSError as error:
            raise UsageError(
                f"{folder}: {error.strerror}", hint="free space, or name another"
            ) from None
        except KeyboardInterrupt:
            raise NotStarted from None
        with ExitStack() as until_whole:
            ended = launch(
                _wrapped(words, settings, folder),
                settings,
                lambda text: note(f"pinchpoint: {text}"),
                until_whole,
            )
            problems = _finished(folder, words, settings, ended)
        if problems is not None:
            _answer(folder, settings, problems, diagnose=diagnose, ncu=ncu)
    except NotStarted:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except KeyboardInterrupt as error:
        error.add_note(f"{folder} has what was recorded until then")
        raise
    return ended.exit_code


# What came of a program that has ended; whatever becomes of it, the exit code is its own.


def _finished(
    folder: Path, words: Sequence[str], settings: "Settings", ended: "Ended"
) -> Sequence[str] | None:
    """The problems of a run whose folder is whole now; None where it cannot be."""
    from pinchpoint.capture.launch import collect

    try:
        problems = collect.finish(folder, words, settings, ended)
        say(folder, [problem for problem in problems if problem not in ended.said])
    except Exception as error:
        note(f"pinchpoint: {folder} is incomplete: {error}")
        return None
    return problems


def _answer(
    folder: Path,
    settings: "Settings",
    problems: Sequence[str],
    *,
    diagnose: bool,
    ncu: bool,
) -> None:
    try:
        if diagnose and settings.tool != "none":
            say_diagnosis(folder, problems)
        else:
            say_others(folder)
        if ncu:
            _count(folder)
    except Exception as error:  # what was recorded is whole, and can be asked again
        note(f"pinchpoint: no answer: {type(error).__name__}: {error}; this is a bug in Pinchpoint")
        note(f"pinchpoint: next: PINCHPOINT_DEBUG=1 pinchpoint diagnose {folder}")


def _count(folder: Path) -> None:
    """Counters of the kernels that decide, and the diagnosis with them."""
    from pinchpoint.cli.programs.ncu import command as count

    try:
        count(folder, top=COUNTED_KERNELS)
    except PinchpointError as error:
        note(f"pinchpoint: no kernel counters: {error.message}")


def _wrapped(words: Sequence[str], settings: "Settings", folder: Path) -> Sequence[str]:
    """The command, under nsys if that was asked for."""
    if settings.tool != "nsys":
        return words
    from pinchpoint.capture.launch.nvidia import require, under_nsys

    return under_nsys(words, require("nsys"), folder)
