"""``pinchpoint bench run``."""

import os
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import note, wrote
from pinchpoint.cli.programs.bench.options import Measuring, Showing, Switch, arguments_of, present
from pinchpoint.cli.programs.bench.profiles import take_profile
from pinchpoint.errors import MeasurementInvalid, UsageError

if TYPE_CHECKING:
    from pinchpoint.bench.result import BenchResult


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
    budget_s: float | None = None,
    gated: Iterable[str] = (),
    *,
    profile: bool = False,
) -> "BenchResult":
    """Run the command several times; MeasurementInvalid if it fails or no run is valid.

    ``gated``: measures that decide; with a budget, runs are as long as their percentiles need.
    """
    from pinchpoint.bench.ab import check_finished
    from pinchpoint.bench.folders import utc_now
    from pinchpoint.bench.measurement import measurement
    from pinchpoint.bench.metrics import RunMetrics
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
        least = _least_steps(gated, measuring)
        options = within(asked_for, budget_s, busy=asleep, least_steps=least)
        params = parameters(command)
        runs = list[RunMetrics]()
        for i in range(processes):
            took = f", {runs[0].duration_s or 0.0:.0f} s each" if runs else ""
            note(f"run {i + 1} of {processes}{took}")
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


def _least_steps(gated: Iterable[str], measuring: Measuring) -> int:
    from pinchpoint.bench.measures import MEASURES
    from pinchpoint.bench.run.enough import steps_for

    known = MEASURES | measuring.custom()
    return steps_for(known[name] for name in gated if name in known)


def _plain(measuring: Measuring) -> dict[str, object]:
    """The options that were set, ready for JSON."""
    return {k: str(v) for k, v in asdict(measuring).items() if v}
