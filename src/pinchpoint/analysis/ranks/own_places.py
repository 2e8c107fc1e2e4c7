"""Which rank does more by itself than its peers, at one place of the program, by looks at all.

Asked where other programs took the cores of the ranks, so that recorded times do not tell.
"""

from collections.abc import Mapping

import numpy as np

from pinchpoint.analysis.ranks.summary import RankPlace
from pinchpoint.frozen import dataclass


@dataclass(frozen=True)
class OwnPlace:
    """What one rank (its position) does beyond its peers."""

    rank: int
    place: RankPlace
    peers_ns: int  # at the same place, in the median
    sure_ns: int  # beyond the most that the peers may do there
    # What the job's step is longer by, at least and as seen: with the time without a core
    there_ns: tuple[int, int] = (0, 0)

    @property
    def more_ns(self) -> int:
        """As it was seen."""
        return max(self.place.ns - self.peers_ns, 0)


def beyond_peers(places: Mapping[int, tuple[RankPlace, ...]]) -> tuple[OwnPlace, ...]:
    """Places at which a rank surely does more than its peers, most first.

    Sure: the least of its interval is above the median of the most of theirs; of a peer that was
    not seen there, that of no look.
    """
    found = []
    for rank, own in places.items():
        peers = [other for r, other in places.items() if r != rank and other]
        for place in own if peers else ():
            theirs = [_at(place, other) for other in peers]
            most = float(
                np.median(
                    [
                        at.most_ns if at else other[0].none_ns
                        for at, other in zip(theirs, peers, strict=True)
                    ]
                )
            )
            usual = float(np.median([at.ns if at else 0 for at in theirs]))
            there = float(np.median([at.there_ns if at else 0 for at in theirs]))
            longer = [max(round(ns - there), 0) for ns in (place.least_there_ns, place.there_ns)]
            if place.least_ns > most:
                sure = round(place.least_ns - most)
                found.append(OwnPlace(rank, place, round(usual), sure, (longer[0], longer[1])))
    return tuple(sorted(found, key=lambda one: -one.sure_ns))


def _at(place: RankPlace, others: tuple[RankPlace, ...]) -> RankPlace | None:
    key = (place.file, place.function)
    return next((one for one in others if (one.file, one.function) == key), None)
