"""The program before the change, which a gate measures side by side with the one here."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pinchpoint.cli.output import note, wrote
from pinchpoint.cli.programs.bench.ab import Deciding, measure_arms
from pinchpoint.cli.programs.bench.options import Measuring
from pinchpoint.replacing import scratch_folder

if TYPE_CHECKING:
    from pinchpoint.bench.ab.result import AbResult
    from pinchpoint.bench.baselines import Baseline
    from pinchpoint.bench.result import BenchResult
    from pinchpoint.bench.run import Arm


def program_of(command: tuple[str, ...]) -> str | None:
    """Which file the command runs: its path in its checkout, which is the same in another one, else
    from here. None for a command without a script."""
    from pinchpoint.bench.ab.arms import checkout_of

    script = next((word for word in command if word.endswith(".py")), None)
    if script is None:
        return None
    path = Path(script).absolute()
    top = checkout_of(path.parent) or Path.cwd()
    return os.path.relpath(path.resolve(), top.resolve())


def pairs_folder(output: Path | None) -> Path | None:
    """Where pairs with the base go: beside the folder of the results."""
    return output.with_name(f"{output.name}-ab") if output else None


@dataclass
class Base:
    """Where the program before the change comes from; its checkout is made when it is needed."""

    command: tuple[str, ...]  # of the program here
    given: str | None  # the command before the change, as it was typed
    commit: str | None  # else of this commit
    lost: str | None = None  # the commit that this shallow clone does not have
    _kept: ExitStack = field(default_factory=ExitStack)
    _arm: "Arm | None" = None

    @property
    def at_hand(self) -> bool:
        """Whether there is one."""
        return bool(self.given or self.commit)

    def arms(self) -> "tuple[Arm, Arm]":
        """Before and now."""
        from pinchpoint.bench.ab.arms import branch_arm, split_command
        from pinchpoint.bench.run import Arm
        from pinchpoint.cli.programs.bench.run import parameters

        if self._arm is None and self.given:
            self._arm = Arm("A", split_command(self.given))
        elif self._arm is None:
            trees = self._kept.enter_context(scratch_folder())
            made = branch_arm("A", self.command, self.commit or "", trees)
            self._arm = self._kept.enter_context(made)
            note(f"base: commit {(self.commit or '')[:10]}, checked out in {trees}")
        return self._arm, Arm("B", self.command, params=parameters(self.command))

    def compare(self, deciding: Deciding, measuring: Measuring) -> "tuple[AbResult, BenchResult]":
        """Both in interleaved pairs, and the runs of the program here as a session of its own."""
        from pinchpoint.bench.folders import utc_now
        from pinchpoint.bench.measurement import measurement
        from pinchpoint.bench.result import BenchResult, with_program
        from pinchpoint.monitor.environment import fingerprint

        folder = pairs_folder(measuring.output)
        arms = self.arms()
        asked = {"base": self.given or self.commit, "command": list(self.command)}
        diff = measuring.keep_diff
        with measurement("ab", asked, folder, keep_diff=diff, program=self.command) as session:
            found = measure_arms(session, arms, deciding, measuring)
            wrote(session.finish(found, verdict=found.verdict))
            here = found.alone or tuple(run for run in found.runs if run.arm == "B")
            record = with_program(session.environment, here)
        return found, BenchResult(
            session_id=found.session_id,
            bench_id=found.bench_id,
            kind="run",
            created_utc=utc_now(),
            command=self.command,
            params=dict(arms[1].params),
            runs=here,
            environment=record,
            env_key=fingerprint(record),
            warnings=session.warnings,
        )


@contextmanager
def base_of(
    past: "Baseline | None", given: str | None, command: tuple[str, ...], measuring: Measuring
) -> Iterator[Base]:
    """The command that was given; else the last commit of the baseline, where this is a repository
    that has it and whose files have changed since. Its checkout is removed at the end."""
    from pinchpoint.bench.ab.arms import earlier_commit, is_shallow_without
    from pinchpoint.bench.baselines import last_commit

    last = None
    if past is not None and command and not given:
        last = last_commit(past, measuring.run_options(command).bench_id)
    lost = last if is_shallow_without(last) else None
    if lost:
        note(without_base(lost))
    commit = earlier_commit(last)
    if commit is not None and last is not None and not commit.startswith(last):
        note(
            f"base: this branch does not contain commit {last[:10]}, at which the last session was"
            f" measured; it is compared with {commit[:10]}, where the two parted"
        )
    with ExitStack() as kept:
        yield Base(command, given, commit, lost, kept)


def without_base(commit: str) -> str:
    """What a gate lacks in a clone that CI made of the last commits only, and how to get it."""
    return (
        f"nothing is measured side by side: this shallow clone lacks commit {commit[:10]}, at which"
        " the last session was measured; clone all (fetch-depth: 0, GIT_DEPTH: 0), or"
        f" git fetch --depth 1 origin {commit}"
    )


def busy_here() -> bool:
    """Whether a history decides nothing on this machine now."""
    from pinchpoint.bench.run.validity import is_busy

    return is_busy(os.getloadavg()[0], os.cpu_count())
