"""Which commit made a program slower: a search by halves, each step an interleaved comparison.

Every candidate is measured side by side with the good commit, in one session: a stored figure of
the good one would be of another hour. Where the pairs do not decide, the search ends with the
commits that are left.
"""

from collections.abc import Callable, Sequence

import msgspec

SCHEMA = "bench.bisect/1"


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One commit against the good one."""

    commit: str
    verdict: str  # regressed, pass, inconclusive
    why: str
    change_ratio: float | None = None  # of the worsening


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


def bisect(good: str, commits: Sequence[str], judge: Callable[[str], Tried]) -> Bisection:
    """The first of ``commits`` (oldest first, the last is the bad one) that is worse than ``good``.

    ``judge`` measures one of them against ``good``. The last one is judged first: without a
    difference there is nothing to search.
    """
    tried = [judge(commits[-1])]
    low, high = 0, len(commits) - 1  # the first bad one is among commits[low : high + 1]
    while tried[-1].verdict != "inconclusive" and low < high and tried[0].verdict == "regressed":
        middle = (low + high) // 2
        tried.append(judge(commits[middle]))
        if tried[-1].verdict == "regressed":
            high = middle
        elif tried[-1].verdict == "pass":
            low = middle + 1
    verdict, left = "found", tuple(commits[low : high + 1])
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
