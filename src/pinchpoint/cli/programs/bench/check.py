"""``pinchpoint bench check`` and ``bench history``."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import note, wrote
from pinchpoint.cli.programs.bench.ab import Deciding, seconds
from pinchpoint.cli.programs.bench.base import (
    Base,
    base_of,
    busy_here,
    pairs_folder,
    program_of,
    without_base,
)
from pinchpoint.cli.programs.bench.options import Measuring, Showing, Switch, present
from pinchpoint.cli.programs.bench.run import measure
from pinchpoint.cli.programs.bench.same_machine import must_be_of_this_machine
from pinchpoint.cli.programs.bench.unwatched import with_unwatched
from pinchpoint.errors import MeasurementInvalid, UsageError

if TYPE_CHECKING:
    from pinchpoint.bench.ab.result import AbResult
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
        Without pairs: past sessions alone fail only what is worse by so much.
    allow_inconclusive
        Exit with 0 instead of 4 if the check cannot tell.
    budget
        Time for warm-up runs and pairs with the base, such as 10m or 90s, and for the profiles of a
        failure. Three pairs and a minute of profiles are the least; where these take longer, that
        is said before.
    at_once
        Run both of a pair at the same time, which sees more in less time. Default: if the base is a
        checkout of its own, and the machine is busy or its speed changes. Not for two programs that
        write the same files.
    profile_on_fail
        If it fails, record a short profile (of the base too, if at hand) and say what changed.
    """

    fail: Annotated[list[str], Parameter(negative="")] = field(default_factory=list)
    warn: Annotated[list[str], Parameter(negative="")] = field(default_factory=list)
    update: Annotated[bool, Switch] = False
    accept: Annotated[bool, Switch] = False
    force: Annotated[bool, Switch] = False
    fails_alone: str = "10%"
    allow_inconclusive: Annotated[bool, Switch] = False
    budget: str = "10m"
    at_once: Annotated[bool | None, Parameter(negative="--no-at-once")] = None
    profile_on_fail: Annotated[bool, Parameter(negative="--no-profile-on-fail")] = True


def check(
    *command: str,
    baseline: Path,
    result: Path | None = None,
    base: str | None = None,
    processes: Annotated[int | None, Parameter(name=["--processes", "-p"])] = None,
    gating: Gating | None = None,
    measuring: Measuring | None = None,
    showing: Showing | None = None,
) -> int:
    """Fail if a command is worse than before: than its base, or past sessions.

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
        The command before the change, quoted, to run in pairs with the new one. Default: in a git
        repository the same command in a checkout of the commit of the last session. Pairs run on a
        busy machine and with few past sessions, else if the session looks worse than past ones.
    processes
        Fresh processes to measure. Default: 3; 1 for the first session on a busy machine in a git
        repository, as later checks run its commit in pairs.
    """
    gating = gating or Gating()
    measuring, showing = measuring or Measuring(), showing or Showing()
    from pinchpoint.bench.baselines import entry_key, gated
    from pinchpoint.bench.measures import MEASURES, parse_percent
    from pinchpoint.bench.result import read_result
    from pinchpoint.cli.programs.bench.explanation import explained_check
    from pinchpoint.report.pages import check as check_page

    begin_s = monotonic()
    past = _past(baseline, gating)
    alone, budget_s = parse_percent(gating.fails_alone), seconds(gating.budget)
    measures = MEASURES | measuring.custom()
    gates = _gates(gating, measures)
    asked, watched = _Asked(gating, measuring, gates, measures, alone), {*gates, *gated(past)}
    if command and result is None:
        _say_at_once(past, baseline, command, gating, measuring)
    with base_of(past, base, command if result is None else (), measuring) as before:
        paired = None if result else _paired(past, before, asked)
        if paired is not None:
            new = paired[1]
        else:
            new = (
                read_result(result)
                if result
                else measure(command, processes or _usual(past), measuring, budget_s, watched)
            )
        update = _Update(baseline, new, gates, measures)
        adds = gating.update or gating.accept
        if past is None or (adds and entry_key(new) not in past.entries):
            if past is not None and past.entries:
                note(f"{baseline}: no session of this benchmark so far; nothing is compared")
            update.write(past, accept=False)
            present(
                new, with_unwatched(_first_page(new, command), past, new, gates, measures), showing
            )
            return 0
        found = _judged(past, new, paired[0] if paired else None, before, asked)
        page = with_unwatched(check_page.page(found), past, new, gates, measures)
        if before.lost:
            page = replace(page, warnings=(*page.warnings, without_base(before.lost)))
        if gating.profile_on_fail and found.verdict == "regressed" and before.command:
            left_s = budget_s - (monotonic() - begin_s)
            page = explained_check(page, before, measuring, found.confirmation, left_s)
    present(found, page, showing)
    if gating.accept or (gating.update and found.verdict in ("pass", "warned")):
        update.write(_with_gates(past, new, gates), accept=gating.accept, pairs=found.confirmation)
    return 0 if found.exit_code == 4 and gating.allow_inconclusive else found.exit_code


def _usual(past: "Baseline | None") -> int:
    """How many processes: a history needs their median and spread. Where it decides nothing, as the
    machine is busy and a base is at hand, a first session has to show that its commit runs."""
    from pinchpoint.bench.ab.arms import checkout_of

    return 1 if past is None and busy_here() and checkout_of(Path.cwd()) is not None else 3


def _first_page(new: "BenchResult", command: tuple[str, ...]) -> "ResultPage":
    """The first session of a benchmark, and what later ones can be compared with."""
    from pinchpoint.bench.result import was_busy
    from pinchpoint.report.pages.bench import run_page

    page = run_page(new)
    base = 'for pairs give --base "COMMAND BEFORE THE CHANGE", or measure in a git repository'
    if (new.environment.get("code") or {}).get("commit") and command:
        base = "later checks run it in pairs with this commit (or with --base COMMAND)"
    if new.kind != "run":
        base = "pinchpoint compare A B holds two results of the same hour against each other"
    if not was_busy(new):
        return replace(
            page,
            notes=(*page.notes, f"the first session of the baseline: nothing was compared; {base}"),
        )
    said = "other programs used the CPUs, so that no later time will be held against these alone"
    return replace(page, warnings=(*page.warnings, f"{said}; {base}"))


@dataclass(frozen=True)
class _Asked:
    """The options of a check, read."""

    gating: Gating
    measuring: Measuring
    gates: "dict[str, Gate]"
    measures: "dict[str, Measure]"
    fails_alone: float


def _with_gates(past: "Baseline", new: "BenchResult", gates: "dict[str, Gate]") -> "Baseline":
    from pinchpoint.bench.baselines import with_gates

    return with_gates(past, new, gates)


def _paired(
    past: "Baseline | None", before: Base, asked: _Asked
) -> "tuple[AbResult, BenchResult] | None":
    """Pairs with the base at once, where a history could not decide. None where it can, or where
    there is nothing to pair with, or it cannot be measured."""
    from pinchpoint.bench.baselines import key_of
    from pinchpoint.bench.baselines.check import fails
    from pinchpoint.bench.baselines.screen import why_pairs
    from pinchpoint.cli.programs.bench.run import parameters

    if past is None or not before.at_hand:
        return None
    options = asked.measuring.run_options(before.command)
    entries = past.entries.get(key_of(options.bench_id, parameters(before.command)), {})
    gates = fails(entries, asked.gates)
    why = why_pairs([entries[name] for name in gates], busy=busy_here())
    if not why:
        return None
    note(f"{why}: measuring side by side with the base")
    return _compared(before, gates, asked)


def _compared(
    before: Base, gates: dict[str, float], asked: _Asked
) -> "tuple[AbResult, BenchResult] | None":
    """None, and a note, where a base that nobody gave cannot be measured: it may lack files."""
    try:
        deciding = Deciding(
            gate=[f"{name}:{100 * ratio:.4f}%" for name, ratio in gates.items()],
            budget=asked.gating.budget,
            at_once=asked.gating.at_once,
        )
        return before.compare(deciding, asked.measuring)
    except (MeasurementInvalid, UsageError) as error:
        if before.given:
            raise
        note(f"the base cannot be measured, and the history decides: {error.message}")
        return None


def _judged(
    past: "Baseline",
    new: "BenchResult",
    pairs: "AbResult | None",
    before: Base,
    asked: _Asked,
) -> "CheckResult":
    """By the history, and by pairs with the base: those there are, or of what is suspect."""
    from pinchpoint.bench.baselines.check import check as judge
    from pinchpoint.bench.baselines.check import suspects
    from pinchpoint.bench.baselines.confirmation import confirmed

    found = judge(
        new,
        _with_gates(past, new, asked.gates),
        measures=asked.measures,
        fails_alone=asked.fails_alone,
        force=asked.gating.force,
    )
    if pairs is not None:
        return confirmed(found, pairs)
    doubtful = suspects(found)
    if not doubtful or not before.at_hand:
        return found
    note(f"suspect: {', '.join(doubtful)}; measuring against the base")
    compared = _compared(before, doubtful, asked)
    return confirmed(found, compared[0]) if compared else found


def _past(path: Path, gating: Gating) -> "Baseline | None":
    """The past sessions, read before minutes are spent on measuring; None if this is the first."""
    from pinchpoint.bench.baselines import gated, read_baseline

    if path.exists():
        past = read_baseline(path)
        if not (gating.fail or gating.warn or gating.update or gating.accept or gated(past)):
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
    baseline or a folder with other results (UsageError), or that nothing will ever fail."""
    from pinchpoint.bench.baselines import key_of
    from pinchpoint.bench.folders import must_be_free
    from pinchpoint.cli.programs.bench.run import parameters

    for folder in filter(None, (measuring.output, pairs_folder(measuring.output))):
        must_be_free(folder)
    key = key_of(measuring.run_options(command).bench_id, parameters(command))
    entries = {} if past is None else past.entries.get(key)
    if past is not None and entries is None and not _meant_as_new(past, key, gating, measuring):
        raise UsageError(
            f"{path}: no session of this command; a command with other arguments is another"
            " benchmark",
            hint="give the program and the arguments of the baseline; from a good state, --accept"
            " takes these in as well, and --update --name NAME as a benchmark of that name",
        )
    then, now = past.programs.get(key) if past else None, program_of(command)
    if then and now and then != now and not (measuring.name or gating.accept):
        raise UsageError(
            f"{path}: its sessions are of {then}, and this is {now}, another program",
            hint=f'pinchpoint bench ab -- "python {then}" "python {now}" compares the two;'
            " --accept begins a new level with this one",
        )
    if not gating.force:
        must_be_of_this_machine(past)
    gated = any(entry.gate != "show" for entry in (entries or {}).values())
    if not (gated or gating.fail or gating.warn):
        note("no measure of this command has a gate: nothing will fail; --fail step_time_ms:5%")


def _meant_as_new(past: "Baseline", key: str, gating: Gating, measuring: Measuring) -> bool:
    """Whether sessions of a command that the baseline does not know may begin: else a slip of the
    pen, or a change that changes the arguments, would pass any gate that keeps its sessions."""
    name = key.partition("|")[0]
    known = {one.partition("|")[0] for one in past.entries}
    named = bool(measuring.name) and name not in known
    return gating.accept or (gating.update and (named or not known))


def history(baseline: Path, /, *, showing: Showing | None = None) -> int:
    """Show the sessions of a baseline and where the level changed.

    Parameters
    ----------
    baseline
        The file that bench check keeps.
    """
    from pinchpoint.bench.baselines import read_baseline
    from pinchpoint.report.pages.history import history_page

    known = read_baseline(baseline)
    present(known, history_page(known), showing or Showing())
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


@dataclass(frozen=True)
class _Update:
    """What would go into the baseline."""

    path: Path
    new: "BenchResult"
    gates: "dict[str, Gate]"
    measures: "dict[str, Measure]"

    def write(
        self, known: "Baseline | None", *, accept: bool, pairs: "AbResult | None" = None
    ) -> None:
        from pinchpoint.bench.baselines import with_session, write_baseline
        from pinchpoint.bench.baselines.confirmation import beside_base

        if not any(run.valid for run in self.new.runs):
            raise UsageError("no valid run to add", hint="measure again")
        after = with_session(
            known,
            self.new,
            gates=self.gates,
            measures=self.measures,
            new_level=accept,
            program=program_of(self.new.command),
            beside_base=None if pairs is None else beside_base(pairs),
        )
        write_baseline(self.path, after)
        wrote(self.path)
