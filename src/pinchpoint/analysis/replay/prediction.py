"""A step as it would be: what every prediction keeps, whoever made it."""

from pinchpoint.analysis.replay.ranges import Made
from pinchpoint.frozen import dataclass


@dataclass(frozen=True)
class Prediction:
    """A step as it would be, beside the step it is compared with; nanoseconds."""

    step_ns: int
    range_ns: tuple[int, int]
    base_ns: int  # the step without the changes and without recording cost
    raw_ns: int | None = None  # as replayed, before it was held against what remains
    bound_ns: int | None = None  # the least that it can be; see :mod:`least_step`
    made: Made | None = None  # what the range was made from; None where it comes from elsewhere
    of_host: bool = False  # the bound is host time, of a program on a CPU

    def __post_init__(self) -> None:
        """No step is shorter than its bound or lies outside of its range, whoever predicted it.

        A bound beyond the step that it is counted from is that of another step: of one that waits
        for nothing, so that no more than the whole of it is left.
        """
        least_ns = min(max(self.bound_ns or 0, 0), max(self.base_ns, 0))
        step_ns = max(self.step_ns, least_ns)
        low_ns, high_ns = min(self.range_ns), max(self.range_ns)
        held = min(max(low_ns, least_ns), step_ns), max(high_ns, step_ns)
        object.__setattr__(self, "step_ns", step_ns)
        object.__setattr__(self, "range_ns", held)
        if self.bound_ns is not None:
            object.__setattr__(self, "bound_ns", least_ns)

    @property
    def saving_ns(self) -> int:
        """What the changes win."""
        return self.base_ns - self.step_ns

    def counted_from(self, base_ns: int) -> "Prediction":
        """The same gain as a share of another step; what that cannot go below is no share, unless
        it is host time, which takes longer in one step than in the other."""
        share = base_ns / max(self.base_ns, 1)
        low_ns, high_ns = self.range_ns
        return Prediction(
            round(self.step_ns * share),
            (round(low_ns * share), round(high_ns * share)),
            base_ns,
            None if self.raw_ns is None else round(self.raw_ns * share),
            round(self.bound_ns * share) if self.of_host and self.bound_ns else self.bound_ns,
            of_host=self.of_host,
        )
