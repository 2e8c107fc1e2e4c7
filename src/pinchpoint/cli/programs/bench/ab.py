"""``pinchpoint bench ab``."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import note, wrote
from pinchpoint.cli.programs.bench.options import Measuring, Showing, Switch, present
from pinchpoint.errors import UsageError
from pinchpoint.regex import regex

if TYPE_CHECKING:
    from pinchpoint.bench.ab.result import AbResult
    from pinchpoint.bench.measurement import Measurement
    from pinchpoint.bench.run import Arm
    from pinchpoint.cli.programs.bench.expected import Promise
    from pinchpoint.report.pages.result import ResultPage

EXIT_CODES = {"pass": 0, "regressed": 1, "inconclusive": 4}


@Parameter(name="*")
@dataclass(frozen=True)
class Deciding:
    """When the comparison is over, and what it must not miss.

    Parameters
    ----------
    pairs
        The most pairs of runs. After 5, 10, 20, 40 and 80 it is asked whether they decide. Default:
        20, with --budget 160.
    budget
        Time for warm-up runs and pairs, such as 5m or 90s. Three pairs are the least; where these
        take longer, that is said before.
    threshold
        The smallest change that must not slip through.
    gate
        A measure that decides, as NAME or NAME:THRESHOLD. May be given again. Default: median
        step and throughput; printed numbers; else wall time.
    warmup_runs
        Runs of each arm before the first pair that are not measured.
    at_once
        Run A and B of a pair at the same time, which sees more in less time. Default: if they run
        in two folders, as branches do, and the machine is busy or its speed changes. Not for two
        programs that write the same files.
    allow_inconclusive
        Exit with 0 instead of 4 if the pairs do not decide.
    profile_on_fail
        If B is worse, record a short profile of both and say what changed.
    """

    pairs: int | None = None
    budget: str | None = None
    threshold: str = "3%"
    gate: Annotated[list[str], Parameter(negative="")] = field(default_factory=list)
    warmup_runs: int = 1
    at_once: Annotated[bool | None, Parameter(negative="--no-at-once")] = None
    allow_inconclusive: Annotated[bool, Switch] = False
    profile_on_fail: Annotated[bool, Switch] = False

    @property
    def budget_s(self) -> float | None:
        """None: as many pairs as decide; UsageError for what is no time."""
        return None if self.budget is None else seconds(self.budget)

    @property
    def most_pairs(self) -> int:
        """Of the plan; UsageError for a number that cannot decide anything."""
        from pinchpoint.bench.ab.decision import LONG, LOOKS

        usual = LOOKS[-1] if self.budget is None else LONG
        most = usual if self.pairs is None else self.pairs
        check_pairs(most)
        return most

    def exit_code(self, verdict: str) -> int:
        """0 pass, 1 regressed, 4 inconclusive."""
        code = EXIT_CODES[verdict]
        return 0 if code == 4 and self.allow_inconclusive else code


@Parameter(name="*")
@dataclass(frozen=True)
class Expecting:
    """What the change was predicted to give.

    Parameters
    ----------
    from_report
        A run folder or recording of A, or a report of it (diagnose --json): the answer says
        whether its prediction came true.
    fixed
        The finding of that report that B fixes, or all. Default: the one to change first.
    """

    from_report: Annotated[Path | None, Parameter(name="--from")] = None
    fixed: str | None = None


@dataclass(frozen=True)
class Asked:
    """What is to be compared, as it was typed."""

    commands: tuple[str, ...]
    knob: str | None = None
    branches: str | None = None
    setup: str | None = None


def ab(
    *commands: str,
    knob: Annotated[list[str], Parameter(negative="")] | None = None,
    branches: str | None = None,
    setup: str | None = None,
    expecting: Expecting | None = None,
    deciding: Deciding | None = None,
    measuring: Measuring | None = None,
    showing: Showing | None = None,
) -> int:
    """Compare two commands, branches or values of a knob.

    In interleaved pairs of fresh processes:

    pinchpoint bench ab -- "python train.py" "python train_fixed.py"

    pinchpoint bench ab --knob num_workers=4,8 -- python train.py

    pinchpoint bench ab --branches main,mine --setup "make" -- python train.py

    Exit code: 0 pass, 1 B is worse, 3 not comparable, 4 inconclusive, 5 invalid.

    Parameters
    ----------
    commands
        Two commands, each one quoted argument; or one command in words, with --knob or --branches.
    knob
        NAME=A,B: replaces {NAME} in the command, else appended as --NAME; env:NAME=A,B sets a
        variable.
    branches
        Two branches or commits, as A,B; each is checked out in a folder of its own.
    setup
        With --branches: a command that builds each checkout before anything is measured.
    """
    deciding = deciding or Deciding()
    measuring, showing = measuring or Measuring(), showing or Showing()
    if len(knob or []) > 1:
        raise UsageError("two knobs at once tell nothing about either", hint="one --knob a time")
    what = Asked(commands, knob[0] if knob else None, branches, setup)
    from pinchpoint.cli.programs.bench.expected import expected

    expecting = expecting or Expecting()
    promise = expected(expecting.from_report, expecting.fixed)
    result, page = compare(what, deciding, measuring, promise)
    present(result, page, showing)
    return deciding.exit_code(result.verdict)


def compare(
    what: Asked, deciding: Deciding, measuring: Measuring, promise: "Promise | None" = None
) -> "tuple[AbResult, ResultPage]":
    """Measure and decide; everything is in the session folder."""
    from msgspec import to_builtins
    from msgspec.structs import replace as replace_field

    from pinchpoint.bench.measurement import measurement
    from pinchpoint.cli.programs.bench.expected import outcome_of
    from pinchpoint.report.pages import ab as ab_page

    _ = deciding.most_pairs, deciding.budget_s  # refused before anything is measured
    with (
        measurement("ab", asdict(what), measuring.output, keep_diff=measuring.keep_diff) as session,
        _arms(what, session.session.folder) as arms,
    ):
        result = measure_arms(session, arms, deciding, measuring)
        fix = outcome_of(result, promise)
        result = replace_field(result, fix=None if fix is None else to_builtins(fix))
        wrote(session.finish(result, verdict=result.verdict))
        page = ab_page.page(result, fix)
        if deciding.profile_on_fail and result.verdict == "regressed":
            from pinchpoint.cli.programs.bench.explanation import with_explanation

            page = with_explanation(page, arms, session.session.folder, result, measuring)
    return result, page


def measure_arms(
    session: "Measurement",
    arms: "tuple[Arm, Arm]",
    deciding: Deciding,
    measuring: Measuring,
    *,
    stop_early: bool = True,
) -> "AbResult":
    """Run the plan of these options."""
    from pinchpoint.bench.ab import AbPlan, run_ab
    from pinchpoint.bench.measures import MEASURES, parse_percent, parse_threshold

    custom = measuring.custom()
    threshold = parse_percent(deciding.threshold)
    thresholds: dict[str, float] = {}
    for text in deciding.gate:
        name, colon, rest = text.partition(":")
        known = (MEASURES | custom).get(name)
        if known is None:
            raise UsageError(f"no measure {name!r}", hint=", ".join(MEASURES | custom))
        ratio = parse_threshold(rest, known).ratio if colon else threshold
        if ratio is None:
            raise UsageError(f"--gate {text}: thresholds of ab are relative", hint=f"{name}:3%")
        thresholds[name] = ratio
    plan = AbPlan(
        *arms,
        session.options(measuring.run_options(arms[0].command)),
        thresholds=thresholds,
        threshold=threshold,
        custom=custom,
        most_pairs=deciding.most_pairs,
        budget_s=deciding.budget_s,
        warmup_runs=deciding.warmup_runs,
        at_once=deciding.at_once,
        stop_early=stop_early,
    )
    return run_ab(plan, session.session, note, warnings=session.warnings)


_TIME = regex(r"([0-9]+(?:\.[0-9]+)?)(s|m|h)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """``90s``, ``5m``, ``1h``; UsageError for anything else."""
    match = _TIME.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise UsageError(f"--budget {text!r}: no time", hint="--budget 5m, 90s or 1h")
    return float(match[1]) * _SECONDS[match[2]]


def check_pairs(pairs: int) -> None:
    """UsageError for a number of pairs that cannot decide anything."""
    if pairs < 3:
        raise UsageError("fewer than 3 pairs decide nothing", hint="--pairs 5 or more")


@contextmanager
def _arms(what: Asked, folder: Path) -> "Iterator[tuple[Arm, Arm]]":
    from pinchpoint.bench.ab.arms import branch_arms, command_arms, knob_arms

    if what.knob and what.branches:
        raise UsageError("--knob or --branches, not both", hint="one change at a time")
    if (what.knob or what.branches) and not what.commands:
        raise UsageError("which command?", hint="give it after --")
    if what.knob:
        yield knob_arms(_words(what.commands), what.knob)
    elif what.branches:
        both = what.branches.split(",")
        if len(both) != 2:
            raise UsageError(
                f"--branches {what.branches}: expected two", hint="--branches main,mine"
            )
        words, trees = _words(what.commands), folder / "trees"
        with branch_arms(words, (both[0], both[1]), trees, what.setup) as arms:
            yield arms
    elif len(what.commands) == 2:
        yield command_arms(*what.commands)
    else:
        raise UsageError(
            f"expected two quoted commands, got {len(what.commands)} words",
            hint='pinchpoint bench ab -- "python a.py" "python b.py"',
        )


def _words(commands: tuple[str, ...]) -> tuple[str, ...]:
    """One command, whether it was quoted as a whole or not."""
    from pinchpoint.bench.ab.arms import split_command

    return split_command(commands[0]) if len(commands) == 1 else commands


# ------------------------------------------------------------------------------------------------
# ``pinchpoint bench calibrate``.


def calibrate(
    *command: str,
    pairs: int = 10,
    measuring: Measuring | None = None,
    showing: Showing | None = None,
) -> int:
    """Compare a command with itself, to know the noise.

    How noisy this machine is, and the smallest change that it can see:

    pinchpoint bench calibrate -- python train.py

    Parameters
    ----------
    command
        The command and its arguments, after --.
    pairs
        Pairs of runs.
    """
    measuring, showing = measuring or Measuring(), showing or Showing()
    from pinchpoint.bench.ab.calibration import calibration
    from pinchpoint.bench.folders import utc_now
    from pinchpoint.bench.measurement import measurement
    from pinchpoint.bench.measures import MEASURES
    from pinchpoint.bench.run import Arm
    from pinchpoint.report.pages.ab import calibration_page

    if not command:
        raise UsageError("which command?", hint="pinchpoint bench calibrate -- python train.py")
    check_pairs(pairs)
    asked = {"command": list(command), "pairs": pairs}
    diff = measuring.keep_diff
    with measurement(
        "calibrate", asked, measuring.output, keep_diff=diff, program=command
    ) as session:
        arm = Arm("A", command)
        arms = (arm, replace(arm, name="B"))
        deciding = Deciding(pairs=pairs)
        result = measure_arms(session, arms, deciding, measuring, stop_early=False)
        done = calibration(result, MEASURES | measuring.custom(), utc_now())
        wrote(session.finish(done))
    present(done, calibration_page(done), showing)
    return 0
