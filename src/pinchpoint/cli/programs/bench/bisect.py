"""``pinchpoint bench bisect``."""

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pinchpoint.cli.output import note, wrote
from pinchpoint.cli.programs.bench.ab import Deciding, measure_arms, seconds
from pinchpoint.cli.programs.bench.options import Measuring, Showing, present
from pinchpoint.errors import UsageError

if TYPE_CHECKING:
    from pinchpoint.bench.ab.bisect import Tried
    from pinchpoint.bench.measurement import Measurement


def bisect(
    *command: str,
    good: str,
    bad: str = "HEAD",
    setup: str | None = None,
    deciding: Deciding | None = None,
    measuring: Measuring | None = None,
    showing: Showing | None = None,
) -> int:
    """Find the commit that made a command slower.

    Each candidate is compared with the good commit in interleaved pairs:

    pinchpoint bench bisect --good v1.2 --threshold 5% -- python train.py

    Exit code: 0 found, 4 not found.

    Parameters
    ----------
    command
        The command and its arguments, after --; run in a checkout of each commit.
    good
        A commit, tag or branch that was as it should be.
    bad
        One that is not; default: the commit that is checked out.
    setup
        A command that builds each checkout before anything is measured.
    """
    from pinchpoint.bench.ab.arms import commits_between
    from pinchpoint.bench.ab.bisect import bisect as search
    from pinchpoint.bench.measurement import measurement
    from pinchpoint.report.pages.ab import bisect_page

    deciding = deciding or Deciding()
    measuring, showing = measuring or Measuring(), showing or Showing()
    if not command:
        raise UsageError("which command?", hint="pinchpoint bench bisect --good v1 -- python a.py")
    _ = deciding.most_pairs, seconds(deciding.budget)  # refused before anything is measured
    commits = commits_between(good, bad)
    asked = {"good": good, "bad": bad, "command": list(command)} | asdict(deciding)
    with measurement("bisect", asked, measuring.output, keep_diff=False) as session:
        judge = partial(_judged, session, _What(command, good, setup), deciding, measuring)
        found = search(good, commits, judge)
        wrote(session.finish(found, verdict=found.verdict))
    present(found, bisect_page(found), showing)
    return found.exit_code


def _judged(
    session: "Measurement", what: "_What", deciding: Deciding, measuring: Measuring, commit: str
) -> "Tried":
    """One commit compared with the good one, in a folder of its own."""
    from pinchpoint.bench.ab.arms import branch_arms
    from pinchpoint.bench.ab.bisect import Tried

    note(f"comparing {commit[:10]} with {what.good}")
    apart = replace(session, session=session.session.below(commit[:10]))
    trees = apart.session.folder / "trees"
    with branch_arms(what.command, (what.good, commit), trees, what.setup) as arms:
        result = measure_arms(apart, arms, deciding, measuring)
    decided = [m for m in result.measures if m.name in result.decided_by]
    said = decided or [m for m in result.measures if m.gated]
    worst = max(said, key=lambda m: m.estimate_ratio, default=None)
    return Tried(
        commit=commit,
        verdict=result.verdict,
        why=result.why,
        change_ratio=worst.estimate_ratio if worst else None,
    )


@dataclass(frozen=True)
class _What:
    command: tuple[str, ...]
    good: str
    setup: str | None
