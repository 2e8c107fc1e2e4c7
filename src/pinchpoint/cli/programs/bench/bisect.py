"""``pinchpoint bench bisect``."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from pinchpoint.cli.output import note, wrote
from pinchpoint.cli.programs.bench.ab import Deciding, measure_arms
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
    resume: Path | None = None,
    deciding: Deciding | None = None,
    measuring: Measuring | None = None,
    showing: Showing | None = None,
) -> int:
    """Find the commit that made a command slower.

    Each candidate is compared with the good commit in interleaved pairs. --budget and --pairs are
    of one comparison; how many there can be is said before the first:

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
    resume
        The folder of a search that was interrupted, or did not decide: what it compared for certain
        is not compared again.
    """
    from pinchpoint.bench.ab.arms import commit_of, commits_between
    from pinchpoint.bench.ab.bisect import Tried, keep_state, known_from, left_of
    from pinchpoint.bench.ab.bisect import bisect as search
    from pinchpoint.bench.measurement import measurement
    from pinchpoint.report.pages.ab import bisect_page

    deciding = deciding or Deciding()
    measuring, showing = measuring or Measuring(), showing or Showing()
    if not command:
        raise UsageError("which command?", hint="pinchpoint bench bisect --good v1 -- python a.py")
    _ = deciding.most_pairs, deciding.budget_s  # refused before anything is measured
    commits = commits_between(good, bad)
    of = {"good commit": commit_of(good), "command": shlex.join(command)}
    of |= {"threshold": deciding.threshold, "gate": " ".join(deciding.gate)}
    known = known_from(resume, of) if resume else ()
    done = [one for one in known if one.commit in commits and one.verdict != "inconclusive"]
    _announce(good, commits, done, deciding)
    asked = {"good": good, "bad": bad, "command": list(command)} | asdict(deciding)
    with measurement("bisect", asked, measuring.output, keep_diff=False) as session:
        folder = session.session.folder
        keep_state(folder, of, done)

        def judge(commit: str) -> Tried:
            begin_s = monotonic()
            what = _What(command, good, setup)
            done.append(_judged(session, what, deciding, measuring, commit))
            keep_state(folder, of, done)
            _said_after(good, commits, done, monotonic() - begin_s)
            return done[-1]

        try:
            found = search(good, commits, judge, known)
        except KeyboardInterrupt as error:
            error.add_note(_state(good, left_of(commits, done), done))
            error.add_note(_go_on(folder))
            raise
        wrote(session.finish(found, verdict=found.verdict))
    present(found, bisect_page(found), showing)
    if found.verdict == "inconclusive":
        note(_go_on(folder))
    return found.exit_code


def _announce(
    good: str, commits: "Sequence[str]", done: "Sequence[Tried]", deciding: Deciding
) -> None:
    from pinchpoint.bench.ab.bisect import left_of, most_comparisons

    left = left_of(commits, done)
    most = most_comparisons(len(left)) - (commits[-1] in {one.commit for one in done})
    each = f"up to {deciding.most_pairs} pairs"
    if deciding.budget_s:
        each = f"{deciding.budget} of pairs, or what the fewest pairs take"
        each += f": about {max(1, round(most * deciding.budget_s / 60))} min in all"
    found = f"{len(commits)} commits after {good}"
    if done:
        found += f", {len(left)} of them left after {len(done)} done"
    left_to_do = f"{most} comparison{'s' * (most != 1)} at most, each {each}"
    note(f"{found}: {left_to_do if most else 'nothing is left to compare'}")


def _said_after(
    good: str, commits: "Sequence[str]", done: "Sequence[Tried]", took_s: float
) -> None:
    """What is left, and about how long it takes."""
    from pinchpoint.bench.ab.bisect import following, left_of, most_comparisons

    if following(commits, done) is None:
        return
    left = left_of(commits, done)
    most = most_comparisons(len(left)) - 1  # the last one of them is known
    minutes = max(1, round(most * took_s / 60))
    note(f"{_state(good, left, done)}; {most} more at most, about {minutes} min")


def _state(good: str, left: "Sequence[str]", done: "Sequence[Tried]") -> str:
    verdicts = {one.commit[:10]: one.verdict for one in done}
    fine = [good, *(commit for commit, said in verdicts.items() if said == "pass")]
    worse = [commit for commit, said in verdicts.items() if said == "regressed"]
    said = f"good: {', '.join(fine)}; worse: {', '.join(worse) or 'none known'}"
    between = left[0][:10] + (f" to {left[-1][:10]}" if len(left) > 1 else "")
    count = f"{len(left)} commits" if len(left) > 1 else "one commit"
    return f"{said}; {count} left ({between})"


def _go_on(folder: Path) -> str:
    return f"to go on: the same command with --resume {folder}"


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
        why=result.decided or result.why,
        change_ratio=worst.estimate_ratio if worst else None,
        better=worst.better if worst else "lower",
    )


@dataclass(frozen=True)
class _What:
    command: tuple[str, ...]
    good: str
    setup: str | None
