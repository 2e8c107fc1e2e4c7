"""Short profiles beside a measurement: apart from the timed runs, which they would slow."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

from pinchpoint.cli.output import note, wrote

if TYPE_CHECKING:
    from pinchpoint.bench.run import Arm
    from pinchpoint.compare.profiles import ProfileComparison

# A program that trains for hours is not waited for. Steady steps, two windows and their files took
# 20 s of a small program of torch at load 11 on 2 CPUs; a large one starts for a minute.
MOST_S = 180.0
LEAST_S = 60.0  # also where less of a budget is left
# After both windows: what is known of values and threads is written in this time.
_SETTLES_S = 3.0
_LOOKS_S = 0.25
_GRACE_S = 30.0  # from an interrupt to the end: the run folder is put together


@dataclass(frozen=True)
class Job:
    """One recording: the command of the recorder, whose program it is, and where it goes."""

    command: tuple[str, ...]
    arm: "Arm"
    folder: Path

    @property
    def log(self) -> Path:
        """What the recorder and the program print."""
        return self.folder.with_suffix(".log")


def take_profile(arm: "Arm", folder: Path, *, limit_s: float = MOST_S) -> Path | None:
    """Record a few steps with ``pinchpoint run`` and give its folder, which knows most causes, or
    the trace where that is all; None, with a note, if there is none. A profile that fails never
    fails the measurement."""
    note(f"recording a short profile of {arm.name or 'the command'}, {limit_s:.0f} s at most")
    job = _job(arm, folder)
    _record([job], limit_s)
    return _recorded(job)


def _job(arm: "Arm", folder: Path, *options: str) -> Job:
    recorder = [sys.executable, "-m", "pinchpoint", "run", "-o", str(folder.resolve()), *options]
    return Job((*recorder, "--no-diagnose", "--", *arm.command), arm, folder)


def _recorded(job: Job, wanted: str = "traces/*.json*") -> Path | None:
    from pinchpoint.run_folder.layout import RUN_FILE

    traces = sorted(job.folder.glob(wanted))
    if not traces:
        note(f"no profile of {job.arm.name or 'the command'}: see {job.log}")
        return None
    return job.folder if (job.folder / RUN_FILE).is_file() else traces[0]


def _record(jobs: Sequence[Job], limit_s: float) -> None:
    """All at the same time. Each is ended once it has both windows, or at the limit."""
    with ExitStack() as started:
        running = {id(job): started.enter_context(_started(job)) for job in jobs}
        try:
            begin, complete = monotonic(), dict[int, float]()
            while any(process.poll() is None for process in running.values()):
                now = monotonic()
                for job in jobs:
                    if not complete.get(id(job)) and _has_both_windows(job.folder):
                        complete[id(job)] = now
                    if now > min(complete.get(id(job), now) + _SETTLES_S, begin + limit_s):
                        _end(running[id(job)])
                sleep(_LOOKS_S)
        finally:
            for process in running.values():
                _end(process)


def _started(job: Job) -> "subprocess.Popen[bytes]":
    with job.log.open("wb") as file:
        return subprocess.Popen(
            job.command,
            cwd=job.arm.cwd,
            env=dict(os.environ) | dict(job.arm.env),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _has_both_windows(folder: Path) -> bool:
    return all(any(folder.glob(f"{kind}/*.json*")) for kind in ("traces", "names"))


def _end(process: "subprocess.Popen[bytes]") -> None:
    """As Ctrl-C would, which the recorder passes on; what does not end so is killed."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def profiles_of(
    arms: "tuple[Arm, Arm]",
    folder: Path,
    *,
    at_once: bool,
    limit_s: float = MOST_S,
    look: str | None = None,
) -> "ProfileComparison | None":
    """Profile both and compare; kept as ``change.json`` and ``change.md``.

    ``at_once``: at the same time, as the pairs ran, so that both meet the same neighbours. On a
    busy machine threads sleep while they wait, as in the pairs: two that spin on two full CPUs took
    500 ms for a step of 9. Where ``nsys`` is installed, B is recorded with it as well.
    ``look``: the command that shows what differs, where A is a checkout that is gone when this is
    read, so that nothing can be measured with it again.
    """
    from pinchpoint.bench.folders import write_atomic
    from pinchpoint.bench.metrics import encode
    from pinchpoint.bench.run.waits import asleep, should_sleep
    from pinchpoint.diagnosis.difference import explained
    from pinchpoint.errors import PinchpointError
    from pinchpoint.importers import load
    from pinchpoint.report import markdown
    from pinchpoint.report.pages import compare as compare_page
    from pinchpoint.report.pages.result import blocks

    a, b = arms
    if should_sleep((), os.environ, *(arm.env for arm in arms)):
        a, b = (replace(arm, env=asleep(arm.env)) for arm in arms)
    jobs = [_job(arm, folder / f"profile-{arm.name}") for arm in (a, b)]
    said = "at the same time" if at_once else "one after the other"
    note(f"recording short profiles of both, {said}: {limit_s:.0f} s at most")
    for together in [jobs] if at_once else [[job] for job in jobs]:
        _record(together, limit_s / (1 if at_once else 2))
    found = [_recorded(job) for job in jobs]
    if shutil.which("nsys"):
        closer = _job(b, folder / "profile-nsys-B", "--nsys")
        _record([closer], limit_s)
        _recorded(closer, "nsys/*")
    if found[0] is None or found[1] is None:
        return None
    try:
        compared = explained(*(load(path) for path in found if path))
    except PinchpointError as error:
        note(f"the profiles cannot be compared: {error.message}")
        return None
    page = compare_page.profiles_page(compared)
    page = replace(page, next_command=look or page.next_command)
    write_atomic(folder / "change.json", encode(compared))
    write_atomic(folder / "change.md", markdown.render(blocks(page)).encode())
    wrote(folder / "change.md")
    return compared
