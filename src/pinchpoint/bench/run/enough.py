"""Runs that end once enough of their steps are timed: programs train for hours, a gate has minutes.

The hooks inside the program end it after so many steps, or so many seconds of them
(``inside.step_recorder``). With a budget and no word of the user, the first run has a part of the
budget, and the others make as many steps as that one did.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import ceil

from pinchpoint.bench.measures import Measure
from pinchpoint.bench.metrics import RunMetrics
from pinchpoint.bench.run import RunOptions
from pinchpoint.errors import UsageError

ENDED_AFTER = "ended_after_steps"  # in the counters of a run
NEVER = "never"
# Five pairs and a warm-up of each arm are twelve runs, and beside its steps a program starts,
# imports and sets up: half of the budget for the steps.
PART_OF_BUDGET = 1 / 24
# On a busy machine pairs differ far more than 15 steps of a run do (two threads of torch at load 6
# to 10 on 2 CPUs: by 5 %, of the first 15 steps as of all 59), and ten of them are wanted.
PART_WHERE_BUSY = 1 / 44
# Seconds of steps of one run, at most: another pair tells more than a longer run. CPU times of two
# threads of torch over eight seconds differ by 1.4 to 1.9 % between both of a pair (load 13 to 20,
# 2 CPUs), which is less than runs differ by from one to the next.
ENOUGH_S = 8.0
WARM_UP_RATIO = 1 / 3  # of the steps of a run, on a busy machine
UNSTEADY = 4  # times as many steps, where the first run's never became steady


def end_of(text: str | None) -> str | None:
    """``40`` (steps), ``30s`` or ``never``, as it was typed; UsageError for anything else."""
    if text is None or text == NEVER:
        return text
    number, seconds = text.removesuffix("s"), text.endswith("s")
    if not number.isdecimal() or int(number) < (1 if seconds else 2):
        raise UsageError(
            f"--end-after {text}: steps (2 or more), seconds such as 30s, or never",
            hint="--end-after 40",
        )
    return text


def steps_for(measures: Iterable[Measure]) -> int:
    """How many steps a run makes at least where these decide: a percentile takes so many that are
    timed, and a third of all may be warm-up. 0 where none of them asks for a number."""
    least = max((measure.least_samples for measure in measures), default=0)
    return ceil(least / (1 - WARM_UP_RATIO))


def within(
    options: RunOptions, budget_s: float | None, *, busy: bool = False, least_steps: int = 0
) -> RunOptions:
    """For the first run. Unchanged where the end is given, where nothing tells of steps, or where
    numbers that the program prints are asked for: these may come at its end."""
    if budget_s is None or options.end_after or not options.record_steps or options.patterns:
        return options
    part = PART_WHERE_BUSY if busy else PART_OF_BUDGET
    least = f",{least_steps}" if least_steps else ""
    return replace(options, end_after=f"{min(budget_s * part, ENOUGH_S):.3g}s{least}")


def like(options: RunOptions, asked: RunOptions, first: RunMetrics) -> RunOptions:
    """For the runs after the first: as many steps as that one made, if ``within`` ended it."""
    steps = first.counters.get(ENDED_AFTER)
    if asked.end_after == options.end_after:
        return asked
    if steps is None:
        return asked  # it ended by itself, and so will the others
    unsteady = first.warmup is not None and first.warmup.converged is False
    return replace(asked, end_after=str(int(steps) * (UNSTEADY if unsteady else 1)))


def said(asked: RunOptions, options: RunOptions) -> tuple[str, ...]:
    """A remark where runs are ended that nobody asked to end."""
    if asked.end_after == options.end_after:
        return ()
    return (
        f"each run was ended after {options.end_after} steps, to fit the budget"
        " (--end-after never: the whole program)",
    )
