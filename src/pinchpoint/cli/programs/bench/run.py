"""``pinchpoint bench run``."""

import os
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import note, wrote
from pinchpoint.cli.programs.bench.options import Measuring, Showing, Switch, arguments_of, present
from pinchpoint.errors import MeasurementInvalid, UsageError

if TYPE_CHECKING:
    from pinchpoint.bench.result import BenchResult
    from pinchpoint.bench.run import Arm
    from pinchpoint.report.pages.result import ResultPage


def run(
    *command: str,
    processes: Annotated[int, Parameter(name=["--processes", "-p"])] = 3,
    profile: Annotated[bool, Switch] = False,
    measuring: Measuring | None = None,
    showing: Showing | None = None,
) -> int:
    """Measure a command: step times, throughput, memory, energy.

    Several fresh processes; each is one sample.

    pinchpoint bench run -- python train.py

    Parameters
    ----------
    command
        The command and its arguments, after --.
    processes
        Fresh processes; a process is the sample.
    profile
        Record a short profile afterwards, apart from the timed runs.
    """
    measuring, showing = measuring or Measuring(), showing or Showing()
    from pinchpoint.report.pages.bench import run_page

    result = measure(command, processes, measuring, profile=profile)
    present(result, run_page(result), showing)
    return 0


def parameters(command: tuple[str, ...]) -> dict[str, list[str]]:
    """What identifies the benchmark beside its name."""
    from pinchpoint.monitor.environment import redacted_command

    return {"arguments": redacted_command(arguments_of(command))}


def measure(
    command: tuple[str, ...],
    processes: int,
    measuring: Measuring,
    *,
    profile: bool = False,
    budget_s: float | None = None,
) -> "BenchResult":
    """Run the command several times; MeasurementInvalid if it fails or no run is valid."""
    from pinchpoint.bench.ab import check_finished
    from pinchpoint.bench.folders import utc_now
    from pinchpoint.bench.measurement import measurement
    from pinchpoint.bench.result import BenchResult, with_program
    from pinchpoint.bench.run import Arm, Place, measure_run, with_seed_of
    from pinchpoint.bench.run.enough import like, said, within
    from pinchpoint.bench.run.waits import NOTE, should_sleep
    from pinchpoint.monitor.environment import fingerprint, redacted_command

    if not command:
        raise UsageError("which command?", hint="pinchpoint bench run -- python train.py")
    if processes < 1:
        raise UsageError("at least one process", hint="-p 3")
    asked = {"command": redacted_command(command), "processes": processes} | _plain(measuring)
    diff = measuring.keep_diff
    with measurement("run", asked, measuring.output, keep_diff=diff, program=command) as session:
        # A session of a gate is read by its pairs where others take the CPUs, and measured as they.
        asleep = budget_s is not None and should_sleep((), os.environ)
        asked_for = session.options(measuring.run_options(command))
        asked_for = replace(asked_for, threads_sleep=asleep)
        options = within(asked_for, budget_s, busy=asleep)
        params = parameters(command)
        runs = []
        for i in range(processes):
            note(f"run {i + 1} of {processes}")
            folder = session.session.folder / f"runs/{i:03d}"
            seeded = with_seed_of(options, i)
            runs.append(measure_run(Arm("", command, params=params), seeded, Place(folder, i)))
            check_finished(runs[-1], folder, options)
            options = like(options, asked_for, runs[0])
        record = with_program(session.environment, runs)
        result = BenchResult(
            session_id=options.session_id,
            bench_id=options.bench_id,
            kind="run",
            created_utc=utc_now(),
            command=command,
            params=params,
            runs=tuple(runs),
            environment=record,
            env_key=fingerprint(record),
            warnings=(*session.warnings, *said(asked_for, options), *((NOTE,) if asleep else ())),
        )
        wrote(session.finish(result))
        if profile:
            trace = take_profile(Arm("", command), session.session.folder / "profile")
            note(f"profile: pinchpoint diagnose {trace}" if trace else "no profile")
    if not any(run.valid for run in runs):
        reasons = sorted({reason for run in runs for reason in run.invalid_reasons})
        raise MeasurementInvalid(
            f"no run is valid: {'; '.join(reasons)}", hint="remove the cause and measure again"
        )
    return result


def _plain(measuring: Measuring) -> dict[str, object]:
    """The options that were set, ready for JSON."""
    return {k: str(v) for k, v in asdict(measuring).items() if v}


# ------------------------------------------------------------------------------------------------
# Short profiles beside a measurement: apart from the timed runs, which they would slow.


def take_profile(arm: "Arm", folder: Path, *, nsys: bool = False) -> Path | None:
    """Record a few steps with ``pinchpoint run`` and give its folder, which knows most causes, or
    the trace where that is all; None, with a note, if there is none. A profile that fails never
    fails the measurement."""
    from pinchpoint.run_folder.layout import RUN_FILE

    options = ["--nsys"] if nsys else []
    recorder = [sys.executable, "-m", "pinchpoint", "run", "-o", str(folder.resolve()), *options]
    note(f"recording a short profile of {arm.name or 'the command'}")
    log = folder.with_suffix(".log")
    _record([*recorder, "--no-diagnose", "--", *arm.command], arm, log)
    wanted = "nsys/*" if nsys else "traces/*.json*"
    traces = sorted(folder.glob(wanted))
    if not traces:
        note(f"no profile of {arm.name or 'the command'}: see {log}")
        return None
    return folder if (folder / RUN_FILE).is_file() and not nsys else traces[0]


def _record(command: list[str], arm: "Arm", log: Path) -> None:
    with log.open("wb") as file:
        subprocess.run(
            command,
            cwd=arm.cwd,
            env=dict(os.environ) | dict(arm.env),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )


def explain_regression(arms: "tuple[Arm, Arm]", folder: Path) -> "ResultPage | None":
    """Profile both arms and say what changed; kept as ``change.json`` and ``change.md``.

    Where ``nsys`` is installed, B is recorded with it as well, for a closer look. On a busy machine
    threads sleep while they wait, as in the pairs that it explains: two that spin on two full CPUs
    took 500 ms for a step of 9, and that says nothing of the change.
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

    if should_sleep((), os.environ, *(arm.env for arm in arms)):
        arms = (
            replace(arms[0], env=asleep(arms[0].env)),
            replace(arms[1], env=asleep(arms[1].env)),
        )
    found = [take_profile(arm, folder / f"profile-{arm.name}") for arm in arms]
    if shutil.which("nsys"):
        take_profile(arms[1], folder / "profile-nsys-B", nsys=True)
    if found[0] is None or found[1] is None:
        return None
    try:
        compared = explained(*(load(path) for path in found if path))
    except PinchpointError as error:
        note(f"the profiles cannot be compared: {error.message}")
        return None
    page = compare_page.profiles_page(compared)
    write_atomic(folder / "change.json", encode(compared))
    write_atomic(folder / "change.md", markdown.render(blocks(page)).encode())
    wrote(folder / "change.md")
    return page
