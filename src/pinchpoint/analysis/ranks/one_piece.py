"""Whether two ranks hand the whole batch to each other once a step, and work one after the other.

Backends of the host do not say whom a message is for, yet of two ranks each is for the other one.
Their clocks need not be brought together: where a rank waits for as long as the other one takes
from receiving to sending, that is what it waits for.
"""

import numpy as np

from pinchpoint.analysis.ranks.matching import Source
from pinchpoint.analysis.ranks.summary import RankSummary, unpack, unpack_small
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Floats, Ints

ANSWERED_RATIO = 0.75  # of the wait: the rest is the message's way, there and back


@dataclass(frozen=True)
class OnePiece:
    """Two ranks (positions): the first sends, waits for the answer and goes on with that."""

    ranks: tuple[int, int]
    own_ns: tuple[float, float]  # mean of each one's steps, without its waits, as recorded
    waited_ns: tuple[float, float]  # mean of each one's steps, for the other one's message
    answer_ns: tuple[float, float]  # mean, from receiving to the next sending


@dataclass(frozen=True, eq=False)
class _Rank:
    """One rank's steps; one element a step."""

    step_ns: Ints
    sent_ns: Ints  # when it called to send
    received_ns: Ints  # when it had received
    waited_ns: Ints
    asked_ns: Ints  # when it called to receive

    @property
    def sends_first(self) -> bool:
        return bool((self.sent_ns <= self.asked_ns).all())

    @property
    def receives_first(self) -> bool:
        return bool((self.received_ns <= self.sent_ns).all())

    def answer_ns(self) -> Floats:
        """From receiving to the next sending, which the first one does a step later."""
        if self.receives_first:
            return (self.sent_ns - self.received_ns).astype(np.float64)
        return (self.sent_ns[1:] - self.received_ns[:-1]).astype(np.float64)


def one_piece(source: Source) -> OnePiece | None:
    """None where it is not so, or not two ranks."""
    ranks: list[_Rank] = []
    for summary in source():
        if len(ranks) == 2 or (one := _of(summary)) is None:
            return None
        ranks.append(one)
    if len(ranks) != 2 or not any(rank.sends_first for rank in ranks):
        return None
    first = 0 if ranks[0].sends_first else 1
    if not ranks[1 - first].receives_first:
        return None
    answer = tuple(float(rank.answer_ns().mean()) for rank in ranks)
    waited = tuple(float(rank.waited_ns.mean()) for rank in ranks)
    if any(answer[1 - at] < ANSWERED_RATIO * waited[at] for at in (0, 1)):
        return None
    own = tuple(float((rank.step_ns - rank.waited_ns).mean()) for rank in ranks)
    second = 1 - first
    return OnePiece(
        (first, second),
        (own[first], own[second]),
        (waited[first], waited[second]),
        (answer[first], answer[second]),
    )


def _of(summary: RankSummary) -> _Rank | None:
    """None unless each of its steps has one message each way, and there are several steps."""
    calls, count = summary.calls, len(unpack(summary.steps.number))
    if calls.stride > 1 or count < 2:
        return None
    kind, step = unpack_small(calls.kind), unpack_small(calls.step)
    names = [one.kind.rpartition(":")[2] for one in summary.call_kinds]
    sends = np.flatnonzero(np.array([name == "send" for name in names], np.bool_)[kind])
    receives = np.flatnonzero(np.array([name == "recv" for name in names], np.bool_)[kind])
    every = np.arange(count)
    if not all(len(at) == count and (step[at] == every).all() for at in (sends, receives)):
        return None
    start, took = unpack(calls.start_ns), unpack(calls.duration_ns)
    return _Rank(
        step_ns=unpack(summary.steps.end_ns) - unpack(summary.steps.start_ns),
        sent_ns=start[sends],
        received_ns=(start + took)[receives],
        waited_ns=unpack(calls.exposed_ns)[receives],
        asked_ns=start[receives],
    )
