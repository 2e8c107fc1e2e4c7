"""``pinchpoint bench check`` and ``bench history``."""

from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import note, wrote
from pinchpoint.cli.programs.bench.ab import Deciding, measure_arms
from pinchpoint.cli.programs.bench.options import Measuring, Showing, Switch, present
from pinchpoint.cli.programs.bench.run import measure
from pinchpoint.errors import UsageError

if TYPE_CHECKING:
    from pinchpoint.bench.baselines import Baseline, Gate
    from pinchpoint.bench.baselines.check import CheckResult
    from pinchpoint.bench.measures import Measure
    from pinchpoint.bench.result import BenchResult
    from pinchpoint.report.pages.result import ResultPage


@Parameter(name="*")
@dataclass(frozen=True)
class Gating:
    """What fails, what warns, and what becomes of the baseline.

    Parameters
    ----------
    fail
        NAME:THRESHOLD, such as throughput_per_s:5%; a worse result fails. May be given again.
    warn
        NAME:THRESHOLD, such as step_time_p95_ms:10ms; a worse result is shown. May be given again.
    update
        Add this session to the baseline if it passes; makes the file if it is not there.
    accept
        The change was meant: add this session as the beginning of a new level.
    force
        Compare even if the machines differ; the result says so.
    fails_alone
        History without a confirmation fails from this change on.
    allow_inconclusive
        Exit with 0 instead of 4 if the history does not decide.
    profile_on_fail
        If it fails, record a short profile (of the base too, if given) and say what changed.
    """

    fail: Annotated[list[str], Parameter(negative="")] = field(default_factory=list)
    warn: Annotated[list[str], Parameter(negative="")] = field(default_factory=list)
    update: Annotated[bool, Switch] = False
    accept: Annotated[bool, Switch] = False
    force: Annotated[bool, Switch] = False
    fails_alone: str = "10%"
    allow_inconclusive: Annotated[bool, Switch] = False
    profile_on_fail: Annotated[bool, Switch] = False


def check(
    *command: str,
    baseline: Path,
    result: Path | None = None,
    base: str | None = None,
    processes: Annotated[int, Parameter(name=["--processes", "-p"])] = 3,
    gating: Gating | None = None,
    measuring: Measuring | None = None,
    showing: Showing | None = None,
) -> int:
    """Gate a command against its past sessions.

    pinchpoint bench check --baseline baseline.json -- python train.py

    Exit code: 0 pass or warned, 1 regressed, 3 not comparable, 4 inconclusive, 5 invalid.

    Parameters
    ----------
    command
        The command and its arguments, after --.
    baseline
        The file with past sessions and gates.
    result
        Judge this result (file or folder of bench run) instead of measuring.
    base
        The command before the change, quoted; suspect changes are confirmed against it, here.
        Default: the same command in a checkout of the last commit in the baseline.
    processes
        Fresh processes to measure.
    """
    gating = gating or Gating()
    measuring, showing = measuring or Measuring(), showing or Showing()
    from pinchpoint.bench.baselines import entry_key, with_gates
    from pinchpoint.bench.baselines.check import check as judge
    from pinchpoint.bench.measures import MEASURES, parse_percent
    from pinchpoint.bench.result import read_result
    from pinchpoint.report.pages import check as check_page

    past = _past(baseline, gating)
    if command and result is None:
        _say_at_once(past, baseline, command, gating, measuring)
    new = read_result(result) if result else measure(command, processes, measuring)
    measures = MEASURES | measuring.custom()
    gates = _gates(gating, measures)
    update = _Update(baseline, new, gates, measures)
    if past is None or (gating.update and entry_key(new) not in past.entries):
        update.write(past, accept=False)
        return 0
    known = with_gates(past, new, gates)
    alone = parse_percent(gating.fails_alone)
    found = judge(new, known, measures=measures, fails_alone=alone, force=gating.force)
    if command:
        found = _confirm(found, known, base, command, measuring)
    page = check_page.page(found)
    if gating.profile_on_fail and found.verdict == "regressed" and command:
        page = _explained(page, base, command, measuring)
    present(found, page, showing)
    if gating.accept or (gating.update and found.verdict in ("pass", "warned")):
        update.write(known, accept=gating.accept)
    return 0 if found.exit_code == 4 and gating.allow_inconclusive else found.exit_code


def _past(path: Path, gating: Gating) -> "Baseline | None":
    """The past sessions, read before minutes are spent on measuring; None if this is the first."""
    from pinchpoint.bench.baselines import read_baseline

    if path.exists():
        past = read_baseline(path)
        if not (gating.fail or gating.warn or gating.update or gating.accept or _gated(past)):
            raise UsageError(
                f"{path}: no measure has a gate, so that nothing could fail",
                hint="say what must not get worse: --fail step_time_ms:5%",
            )
        return past
    if not gating.update:
        raise UsageError(
            f"{path}: no such baseline", hint="make it from a good state: add --update"
        )
    return None


def _say_at_once(
    past: "Baseline | None",
    path: Path,
    command: tuple[str, ...],
    gating: Gating,
    measuring: Measuring,
) -> None:
    """What would otherwise be said after minutes of measuring: another command than in the
    baseline (UsageError), or that nothing will ever fail."""
    from pinchpoint.bench.baselines import key_of
    from pinchpoint.cli.programs.bench.run import parameters

    key = key_of(measuring.run_options(command).bench_id, parameters(command))
    entries = {} if past is None else past.entries.get(key)
    if entries is None and not gating.update:
        raise UsageError(
            f"{path}: no session of this command; a command with other arguments is another"
            " benchmark",
            hint="give the arguments of the baseline, or add this one from a good state: --update",
        )
    gated = any(entry.gate != "show" for entry in (entries or {}).values())
    if not (gated or gating.fail or gating.warn):
        note("no measure of this command has a gate: nothing will fail; --fail step_time_ms:5%")


def _gated(past: "Baseline") -> bool:
    return any(e.gate != "show" for entries in past.entries.values() for e in entries.values())


def _explained(
    page: "ResultPage", base: str | None, command: tuple[str, ...], measuring: Measuring
) -> "ResultPage":
    """The page with what a profile of the change says; without a base the profile is kept only."""
    from pinchpoint.bench.ab.arms import split_command
    from pinchpoint.bench.folders import start_session
    from pinchpoint.bench.run import Arm
    from pinchpoint.cli.programs.bench.ab import with_explanation
    from pinchpoint.cli.programs.bench.run import take_profile

    output = measuring.output
    where = output.with_name(f"{output.name}-profile") if output else None
    new = Arm("B", command)
    with start_session("profile", {"command": list(command)}, where) as session:
        if base:
            page = with_explanation(page, (Arm("A", split_command(base)), new), session.folder)
        else:
            trace = take_profile(new, session.folder / "profile-B")
            note(f"profile: pinchpoint diagnose {trace}" if trace else "no profile")
        session.finish()
    return page


def history(baseline: Path, /, *, showing: Showing | None = None) -> int:
    """Show the sessions of a baseline and where the level changed.

    Parameters
    ----------
    baseline
        The file that bench check keeps.
    """
    from pinchpoint.bench.baselines import read_baseline
    from pinchpoint.report.pages import check as check_page

    known = read_baseline(baseline)
    present(known, check_page.history_page(known), showing or Showing())
    return 0


def _gates(gating: Gating, measures: "dict[str, Measure]") -> "dict[str, Gate]":
    from pinchpoint.bench.baselines import Gate
    from pinchpoint.bench.measures import parse_gate

    gates = {}
    for action, texts in (("warn", gating.warn), ("fail", gating.fail)):
        for text in texts:
            name, threshold = parse_gate(text, measures)
            gates[name] = Gate(threshold, action)
    return gates


def _confirm(
    found: "CheckResult",
    past: "Baseline",
    base: str | None,
    command: tuple[str, ...],
    measuring: Measuring,
) -> "CheckResult":
    """Measure what is suspect against the command before the change.

    Without ``--base`` that is the same command in a checkout of the last commit that passed, where
    this is a repository that has it and whose files have changed since.
    """
    from pinchpoint.bench.ab.arms import branch_arm, earlier_commit, split_command
    from pinchpoint.bench.baselines import last_commit
    from pinchpoint.bench.baselines.check import confirmed, suspects
    from pinchpoint.bench.measurement import measurement
    from pinchpoint.bench.run import Arm

    doubtful = suspects(found)
    commit = None if base or not doubtful else earlier_commit(last_commit(past, found.bench_id))
    if not doubtful or not (base or commit):
        return found
    note(f"suspect: {', '.join(doubtful)}; measuring against the base")
    deciding = Deciding(gate=[f"{name}:{100 * ratio:.4f}%" for name, ratio in doubtful.items()])
    folder = measuring.output.with_name(measuring.output.name + "-ab") if measuring.output else None
    asked = {"base": base or commit, "command": list(command)}
    with (
        measurement("ab", asked, folder, keep_diff=measuring.keep_diff) as session,
        nullcontext(Arm("A", split_command(base)))
        if base
        else branch_arm("A", command, commit or "", session.session.folder / "trees") as before,
    ):
        arms = (before, Arm("B", command))
        result = measure_arms(session, arms, deciding, measuring)
        wrote(session.finish(result, verdict=result.verdict))
    return confirmed(found, result)


@dataclass(frozen=True)
class _Update:
    """What would go into the baseline."""

    path: Path
    new: "BenchResult"
    gates: "dict[str, Gate]"
    measures: "dict[str, Measure]"

    def write(self, known: "Baseline | None", *, accept: bool) -> None:
        from pinchpoint.bench.baselines import with_session, write_baseline

        if not any(run.valid for run in self.new.runs):
            raise UsageError("no valid run to add", hint="measure again")
        after = with_session(
            known, self.new, gates=self.gates, measures=self.measures, new_level=accept
        )
        write_baseline(self.path, after)
        wrote(self.path)
