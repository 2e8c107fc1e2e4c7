"""One piece of a step and what it is worth, and all of them."""

from pinchpoint.analysis.causal.pieces import Cut
from pinchpoint.frozen import dataclass

MOST_PIECES = 40  # of one cut, largest first: beyond them nothing is worth a look
# A piece that takes less of the step cannot be worth fixing (3 % of the step is).
LEAST_STEP_RATIO = 0.01


@dataclass(frozen=True)
class Piece:
    """One piece of a step; nanoseconds a step, without the profiler where that is known."""

    cut: Cut
    name: str  # as recorded
    calls: float  # device operations a step
    host_ns: int  # host time of its own; of a wait, the whole call
    device_ns: int  # that a device is at work with it, on any stream
    limit_ns: int | None  # what its device operations need; None: not known for most of them
    needed_bytes: int | None  # that its device operations have to move
    step_if_free_ns: int
    step_at_limit_ns: int
    step_without_host_ns: int
    base_ns: int
    critical_ns: int = 0  # of its host and device time, on the critical path; see ``off_path``
    launches_per_call: float | None = None  # device operations of one operator call
    in_kernels: bool = False  # most of its device time, not in copies and collectives

    @property
    def occupied_ns(self) -> int:
        """Host and device time together."""
        return self.host_ns + self.device_ns

    @property
    def hidden_ns(self) -> int:
        """Of that, what the step would not get shorter by."""
        return max(self.occupied_ns - (self.base_ns - self.step_if_free_ns), 0)

    @property
    def times_limit(self) -> float | None:
        """How many times its limit the device work takes."""
        return self.device_ns / self.limit_ns if self.limit_ns else None


@dataclass(frozen=True)
class Causal:
    """The pieces of all cuts, largest gain first; empty with a reason where replay cannot say."""

    base_ns: int | None
    pieces: tuple[Piece, ...]
    why_not: str | None = None

    def of(self, cut: Cut) -> tuple[Piece, ...]:
        """The pieces of one cut."""
        return tuple(piece for piece in self.pieces if piece.cut == cut)
