"""What is kept of each rank in memory: a row of numbers, about 100 bytes."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

from pinchpoint.analysis.ranks.summary import RankSummary, unpack

_NUMBERS = 10  # of a rank
_NONE = -(1 << 62)  # inside the column only


@dataclass(frozen=True, slots=True)
class RankFacts:
    """One rank."""

    rank: int
    world_size: int | None
    device: str | None
    backend: str | None
    truncated: bool
    refused: str | None
    events: int
    corrected_step_ns: int | None
    typical_step_ns: int | None
    calls: int
    stride: int
    point_to_point: int
    begin_ns: int | None  # of its first step, on its own clock; None without steps
    end_ns: int | None  # of its last


@dataclass
class RankTable(Sequence[RankFacts]):
    """All ranks in order; a rank becomes an object only where it is asked for."""

    numbers: "array[int]" = field(default_factory=lambda: array("q"))
    words: "array[int]" = field(default_factory=lambda: array("i"))
    text: dict[str | None, int] = field(default_factory=dict)

    def add(self, summary: RankSummary) -> None:
        """The next rank."""
        said = (
            summary.rank or 0,
            summary.world_size,
            summary.events,
            summary.corrected_step_ns,
            summary.typical_step_ns,
            summary.calls.in_all,
            summary.calls.stride * 2 + summary.truncated,
            summary.point_to_point,
            *(unpack(summary.steps.start_ns)[:1].tolist() or [None]),
            *(unpack(summary.steps.end_ns)[-1:].tolist() or [None]),
        )
        self.numbers.extend(_NONE if value is None else _fitting(value) for value in said)
        for word in (summary.device, summary.backend, summary.refused):
            self.words.append(self.text.setdefault(word, len(self.text)))

    def __len__(self) -> int:
        return len(self.words) // 3

    @overload
    def __getitem__(self, at: int) -> RankFacts: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[RankFacts]: ...

    def __getitem__(self, at: int | slice) -> RankFacts | Sequence[RankFacts]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        said = self.numbers[_NUMBERS * at : _NUMBERS * (at + 1)]
        rank, world, events, corrected, typical, calls, flags, pairs, begin, end = (
            None if value == _NONE else value for value in said
        )
        texts = list(self.text)
        device, backend, refused = (texts[i] for i in self.words[3 * at : 3 * at + 3])
        return RankFacts(
            rank=rank or 0,
            world_size=world,
            device=device,
            backend=backend,
            truncated=bool((flags or 0) & 1),
            refused=refused,
            events=events or 0,
            corrected_step_ns=corrected,
            typical_step_ns=typical,
            calls=calls or 0,
            stride=(flags or 0) >> 1,
            point_to_point=pairs or 0,
            begin_ns=begin,
            end_ns=end,
        )

    def __iter__(self) -> Iterator[RankFacts]:
        return (self[i] for i in range(len(self)))


def _fitting(value: int) -> int:
    """A damaged record may say any number."""
    return min(max(value, _NONE + 1), -_NONE)
