"""When the calls of the program's functions are heard of: once, after all other looks."""

import threading
from typing import TYPE_CHECKING, Any

from pinchpoint.capture.process.policy import compile_count
from pinchpoint.capture.process.same_calls import SameCalls, Us
from pinchpoint.capture.process.stage import Stage
from pinchpoint.capture.process.stages import Stages

if TYPE_CHECKING:
    from pinchpoint.capture.samples.sampler import Sampler

FEWEST_LOOKS = 50  # at the thread of the steps: of fewer, a twentieth is not told from nothing
MOST_TRIES = 3  # that a window may end
LONG_STEP_NS = 200_000_000  # of such steps a program may not have many more than are timed


class CallsLook:
    """Hears of calls in a few steps in turn, none of which is recorded or timed."""

    def __init__(self, session: Stages, sampler: "Sampler") -> None:
        self._session, self._sampler = session, sampler
        self._same, self._tries = SameCalls(), 0

    def start(self) -> None:
        """Be told of edges."""
        self._session.looks.join(self)

    def stop(self) -> None:
        """Listen no more."""
        self._same.end()
        self._session.looks.leave(self)

    @property
    def due(self) -> bool:
        """Whether it has not ended."""
        return self._same.note is None

    @property
    def cost_ns(self) -> int:
        """Of the program's time."""
        return self._same.cost_ns

    @property
    def document(self) -> dict[str, Any] | None:
        """What was heard, and how its steps are told; None: not yet."""
        note = self._same.note
        return note and note | {"by": self._session.steps_by, "cost_ns": self._same.cost_ns}

    def step_ended(self) -> None:
        """Count it, if it was heard of."""
        if self._same.listens:
            self._session.clock.disturb()
            self._same.step_ends()
            self._leave_if_over()

    def step_begins(self) -> None:
        """Listen from now on, if nothing else goes on and enough is known."""
        session = self._session
        if self._same.listens:
            if session.stage is Stage.RECORDING or session.quiet_busy:
                self._break_off()  # a window was opened at this edge
            return
        if not self._may_begin():
            return
        seen = self._seen()
        if seen is None:
            return
        session.clock.disturb()
        self._same.begin(seen)
        self._leave_if_over()

    def _break_off(self) -> None:
        self._same.end()
        self._tries += 1
        note = self._same.note
        if note is not None and not note["functions"] and self._tries < MOST_TRIES:
            self._same = SameCalls()  # after that window
        self._leave_if_over()

    def _may_begin(self) -> bool:
        session = self._session
        steps = session.clock.interval_ns
        long = bool(steps) and steps[-1] >= LONG_STEP_NS
        calm = session.stage is Stage.DONE or (long and session.stage is Stage.TIMING)
        if not calm or session.quiet_busy or session.other_records() or compile_count():
            return False
        return not session.looks.others_due(self)

    def _seen(self) -> Us | None:
        """Microseconds of this thread by stack; None while there are too few looks."""
        mine = self._sampler.threads.get(threading.get_ident())
        if mine is None or mine.looks < FEWEST_LOOKS:
            return None
        codes = self._sampler.table.codes()
        seen: Us = {}
        for number, (us, _, _) in list(mine.spent.items()):
            if (stack := codes.get(number)) is not None:
                seen[stack] = seen.get(stack, 0) + us
        return seen

    def _leave_if_over(self) -> None:
        if self._same.note is not None:
            self._session.looks.leave(self)
