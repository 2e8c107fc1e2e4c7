"""The ladder of fixes in the report document: today's step, and the step after each change."""

import msgspec


class RungInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One change; times are the clock of gains, without the profiler where that is known."""

    id: str  # of a finding; of a piece its name
    kind: str  # finding, piece (of the causal profile, that no rule explains), together
    step_ns: int  # after the change
    range_ns: tuple[int, int]  # least and most
    sure_ns: int  # won even at the slow end of the range
    base_ns: int  # that it counts from: the ladder's, or the step with ``after`` fixed
    recorded_step_ns: int | None = None  # the same share of the recorded step; null: not known
    effort: str | None = None  # setting, lines, work; null for all together
    after: tuple[str, ...] = ()  # findings that have to be fixed first
    on_host: bool = (
        False  # of a piece: without its host time; else with its device work at the limit
    )
    free: bool = False  # of a piece: the step if it cost nothing; no rule knows how to win it
    once_a_step: bool = False  # a wait that comes once a step; host work that wins as much is first
    where: str | None = None  # of a finding: its place; null: not known


class LadderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Changes in the order in which to make them: gain for what they take."""

    base_ns: int  # today's step
    recorded_base_ns: int | None = None  # the same step with the profiler; null: not known
    rungs: tuple[RungInfo, ...] = ()  # the first one first; a piece and all together last
    best_single: str | None = None  # id of the change that wins most, where another is first
