"""Which steps tell how long one takes without the profiler: on each side of the recordings."""

import time

from pinchpoint.capture.process.step_clock import FIRST_STEPS

TIMED_STEPS = 20  # on each side
TIMED_NS = 30_000_000_000  # long enough for a figure when steps are slow


class TimedSteps:
    """Numbers of ordinary steps, with nothing but the hooks on."""

    def __init__(self) -> None:
        self.before, self.after = range(0), range(0)
        self._since_ns = 0

    def before_recording(self, intervals: int) -> None:
        """A recording of steady steps follows, the first one, or none at all."""
        if not self.before:
            self.before = range(max(FIRST_STEPS, intervals - TIMED_STEPS), intervals)

    def begin(self, intervals: int) -> None:
        """The recordings are over, and the program is back at its pace."""
        self.after = range(intervals, intervals + TIMED_STEPS)
        self._since_ns = time.monotonic_ns()

    def enough(self, intervals: int) -> bool:
        """Whether these are as many as are needed."""
        slow = time.monotonic_ns() - self._since_ns > TIMED_NS
        return intervals >= self.after.stop or (slow and intervals > self.after.start)

    def end(self, intervals: int) -> None:
        """No more of them."""
        self.after = range(self.after.start, intervals)
