"""Which commit made a program slower: a search by halves, each step an interleaved comparison.

Every candidate is measured side by side with the good commit, in one session: a stored figure of
the good one would be of another hour. Where the pairs do not decide, the search ends with the
commits that are left.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from pinchpoint.bench.folders import write_atomic
from pinchpoint.bench.metrics import encode
from pinchpoint.errors import UsageError
from pinchpoint.replacing import read_bounded

SCHEMA = "bench.bisect/1"
STATE_FILE = "tried.json"  # in the folder of the search, from its first comparison on


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One commit against the good one."""

    commit: str
    verdict: str  # regressed, pass, inconclusive
    why: str
    change_ratio: float | None = None  # of the worsening
    better: str = "lower"  # of the measure that it is of


class Bisection(msgspec.Struct, frozen=True, kw_only=True):
    """What the search found; ``left`` are the commits of which one is the first bad one."""

    schema: str = SCHEMA
    good: str
    bad: str
    verdict: str  # found, not worse, inconclusive
    first_bad: str | None
    left: tuple[str, ...]
    tried: tuple[Tried, ...]

    @property
    def exit_code(self) -> int:
        """0 found, 4 not found."""
        return 0 if self.verdict == "found" else 4


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What a search has found out so far, for one that goes on with it."""

    asked: dict[str, str]  # good commit, command and threshold: of others nothing is known
    tried: tuple[Tried, ...]


def most_comparisons(commits: int) -> int:
    """Of a search among so many: the last one, then halves."""
    return 1 + max(commits - 1, 0).bit_length()


def bisect(
    good: str, commits: Sequence[str], judge: Callable[[str], Tried], known: Sequence[Tried] = ()
) -> Bisection:
    """The first of ``commits`` (oldest first, the last is the bad one) that is worse than ``good``.

    ``judge`` measures one of them against ``good``, unless it is ``known`` and decided. The last
    one is judged first: without a difference there is nothing to search.
    """
    before = {one.commit: one for one in known if one.verdict != "inconclusive"}
    tried = list[Tried]()
    while (commit := following(commits, tried)) is not None:
        tried.append(before.get(commit) or judge(commit))
    verdict, left = "found", left_of(commits, tried)
    if tried[0].verdict == "pass":
        verdict, left = "not worse", tuple[str, ...]()
    elif tried[-1].verdict == "inconclusive":
        verdict = "inconclusive"
    return Bisection(
        good=good,
        bad=commits[-1],
        verdict=verdict,
        first_bad=left[0] if verdict == "found" else None,
        left=left,
        tried=tuple(tried),
    )


def following(commits: Sequence[str], tried: Sequence[Tried]) -> str | None:
    """Which commit to compare after these; None where the search is over."""
    if not tried:
        return commits[-1]
    left = left_of(commits, tried)
    if tried[-1].verdict == "inconclusive" or len(left) <= 1 or tried[0].verdict != "regressed":
        return None
    return left[(len(left) - 1) // 2]


def left_of(commits: Sequence[str], tried: Sequence[Tried]) -> tuple[str, ...]:
    """Of which one is the first bad one, after these comparisons in their order."""
    low, high = 0, len(commits) - 1
    for one in tried:
        at = commits.index(one.commit)
        if one.verdict == "regressed":
            high = min(high, at)
        elif one.verdict == "pass" and at < len(commits) - 1:
            low = max(low, at + 1)
    return tuple(commits[low : high + 1]) or (commits[high],)


def keep_state(folder: Path, asked: dict[str, str], tried: Sequence[Tried]) -> None:
    """Written after each comparison, so that nothing measured is lost."""
    write_atomic(folder / STATE_FILE, encode(State(asked=asked, tried=tuple(tried))))


def known_from(folder: Path, asked: dict[str, str]) -> tuple[Tried, ...]:
    """What an earlier search found out; UsageError if it is none, or was asked something else."""
    path = folder / STATE_FILE
    try:
        state = msgspec.json.decode(read_bounded(path), type=State)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{path}: cannot be read ({error})", hint="--resume FOLDER: that of a bisect"
        ) from None
    other = [name for name, said in asked.items() if state.asked.get(name) != said]
    if other:
        raise UsageError(
            f"{folder}: its search was of another {' and '.join(other)}",
            hint=f"it had {', '.join(f'{n} {state.asked.get(n)}' for n in other)}",
        )
    return state.tried
