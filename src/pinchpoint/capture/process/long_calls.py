"""How long the main thread stays in one call: steps of a program that shows none are no shorter.

A thread that is at the same instruction of the same function as a moment before, and has not waited
for anything anew meanwhile, has not left it. Looks a tenth of a second apart tell calls from two
looks on.
"""

import threading
import time
from pathlib import Path

from pinchpoint.capture.process.memory import resident_bytes
from pinchpoint.capture.samples.stacks import Place, stack_of

ROUNDS = 6  # of the longest call: three steps that are whole, one begun before, and some air
MOST_S = 20.0  # of a recording: steps of minutes are left to --seconds


class LongCalls:
    """``look`` again and again; ``longest_s`` so far."""

    def __init__(self) -> None:
        main = threading.main_thread()
        self._ident = main.ident
        self._status = Path(f"/proc/self/task/{main.native_id}/status")
        self._at: tuple[list[Place], int | None] = ([], None)
        self._since = time.monotonic()
        self.longest_s = 0.0

    def look(self) -> None:
        """Where it is by now."""
        at = (stack_of(self._ident)[:1] if self._ident else [], self._waits())
        now = time.monotonic()
        if at != self._at or at[1] is None:
            self._at, self._since = at, now
        self.longest_s = max(self.longest_s, now - self._since)

    def enough_s(self, wanted_s: float, most_s: float) -> float:
        """How long a recording should be that was to take ``wanted_s``."""
        return max(wanted_s, min(ROUNDS * self.longest_s, most_s, MOST_S))

    def _waits(self) -> int | None:
        """How often it has waited for something so far; None where the system does not tell."""
        try:
            for line in self._status.read_bytes().splitlines():
                if line.startswith(b"voluntary_ctxt_switches:"):
                    return int(line.split()[1])
        except (OSError, ValueError, IndexError):
            pass
        return None


LOOK_AGAIN_S = 0.1  # a look reads two files of /proc


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
