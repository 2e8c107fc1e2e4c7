"""``pinchpoint bench run``."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pinchpoint.cli._bench.options import Measuring, Showing, Switch, arguments_of
from pinchpoint.cli._bench.present import present
from pinchpoint.cli.output import note, wrote
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
    from pinchpoint.report.pages import run as run_page

    result = measure(command, processes, measuring, profile=profile)
    present(result, run_page.page(result), showing)
    return 0


def measure(
    command: tuple[str, ...], processes: int, measuring: Measuring, *, profile: bool = False
) -> "BenchResult":
    """Run the command several times; MeasurementInvalid if it fails or no run is valid."""
    from pinchpoint.bench.ab import check_finished
    from pinchpoint.bench.folders import utc_now
    from pinchpoint.bench.measurement import measurement
    from pinchpoint.bench.result import BenchResult, with_program
    from pinchpoint.bench.run import Arm, Place, measure_run, with_seed_of
    from pinchpoint.monitor.environment import fingerprint, redacted_command

    if not command:
        raise UsageError("which command?", hint="pinchpoint bench run -- python train.py")
    if processes < 1:
        raise UsageError("at least one process", hint="-p 3")
    asked = {"command": redacted_command(command), "processes": processes} | _plain(measuring)
    with measurement("run", asked, measuring.output, keep_diff=measuring.keep_diff) as session:
        options = session.options(measuring.run_options(command))
        params = {"arguments": redacted_command(arguments_of(command))}
        runs = []
        for i in range(processes):
            note(f"run {i + 1} of {processes}")
            folder = session.session.folder / f"runs/{i:03d}"
            seeded = with_seed_of(options, i)
            runs.append(measure_run(Arm("", command, params=params), seeded, Place(folder, i)))
            check_finished(runs[-1], folder, options)
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
            warnings=session.warnings,
        )
        wrote(session.finish(result))
        if profile:
            from pinchpoint.cli._bench.profiles import take_profile

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
