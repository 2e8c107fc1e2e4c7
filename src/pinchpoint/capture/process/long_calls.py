"""How long the main thread waits in one call: steps of a program that shows none are no shorter.

A thread that is at the same instruction of the same function as a moment before, and has hardly
been on a core since, has not left it: JAX looks for signals five times a second while it waits for
a result, which takes 0.03 to 0.16 ms, and a step that begins takes a millisecond.
"""

import threading
import time

from pinchpoint.capture.process.memory import resident_bytes
from pinchpoint.capture.samples.stacks import Place, stack_of

ROUNDS = 5  # of the longest call: three steps that are whole, one begun before, and some air
MOST_S = 20.0  # of a recording: steps of minutes are left to --seconds
IDLE_NS = 200_000  # on a core from one look to the next, at most


class LongCalls:
    """``look`` again and again; ``longest_s`` so far."""

    def __init__(self) -> None:
        self._ident = threading.main_thread().ident
        self._at: list[Place] = []
        self._on_core_ns: int | None = None
        self._since = time.monotonic()
        self.longest_s = 0.0

    def look(self) -> None:
        """Where it is by now."""
        at = stack_of(self._ident)[:1] if self._ident else []
        before, self._on_core_ns = self._on_core_ns, self._now_on_core_ns()
        now = time.monotonic()
        known = before is not None and self._on_core_ns is not None
        if at != self._at or not known or (self._on_core_ns or 0) - (before or 0) > IDLE_NS:
            self._at, self._since = at, now
        self.longest_s = max(self.longest_s, now - self._since)

    def enough_s(self, wanted_s: float, most_s: float) -> float:
        """How long a recording should be that was to take ``wanted_s``."""
        return max(wanted_s, min(ROUNDS * self.longest_s, most_s, MOST_S))

    def _now_on_core_ns(self) -> int | None:
        """Its time on cores so far; None where the system does not tell."""
        try:
            return time.clock_gettime_ns(time.pthread_getcpuclockid(self._ident or 0))
        except (AttributeError, OSError):
            return None


LOOK_AGAIN_S = 0.1


def wait_while_it_fits(
    end: threading.Event, max_bytes: int, wanted_s: float, most_s: float
) -> str | None:
    """Until a recording is long enough, the program ends, or it has grown by what --max-size
    allows; what went wrong, in words."""
    before, began, calls = resident_bytes() or 0, time.monotonic(), LongCalls()
    took_s = 0.0
    while took_s < calls.enough_s(wanted_s, most_s) and not end.wait(LOOK_AGAIN_S):
        took_s = time.monotonic() - began
        if most_s > wanted_s:
            calls.look()
        if (resident_bytes() or 0) - before > max_bytes:
            return (
                f"the recording ended after {took_s:.1f} of {wanted_s:g} s: the program had"
                " grown by the limit of --max-size"
            )
    return None
