"""Steps that are far from typical: how often, how long, and what was seen in them.

Two steps are never judged, as elsewhere: allocation, autotuning and lazy initialisation. Steps in
which Pinchpoint recorded or held the program up are left out.
"""

import threading
from array import array
from collections import deque
from random import Random
from typing import Any

from pinchpoint.capture.process.step_clock import FIRST_STEPS, STALL_NS, StepClock
from pinchpoint.capture.samples.host_facts import Counters
from pinchpoint.capture.samples.parts import Parts
from pinchpoint.capture.samples.sampler import Sampler
from pinchpoint.capture.samples.spans import Spans

FAR_RATIO = 1.5  # of the typical step; ordinary noise stays below
FAR_NS = STALL_NS  # at least so much longer
RECENT = 33  # steps by which the typical one is known; odd, so that the middle is one of them
JUDGED_EVERY = 8  # times: what is typical changes slowly
JUDGED_FROM = 7  # steps; until then all are kept
MOST_EVENTS = 96  # far steps whose samples are kept: all alike likely, so that shares are true
MOST_NUMBERS = 4096  # far steps whose number is kept, by which a period shows
MOST_FOR_MEDIAN = 4096  # steps of the run, evenly spread
MOST_USUAL = 100  # stacks of typical steps, most time first
MOST_STACKS = 24  # of one far step, most frequent first


class FarSteps:
    """Hears of every step; keeps what was seen in far ones."""

    def __init__(self, sampler: Sampler, spans: Spans) -> None:
        self._sampler, self._spans = sampler, spans
        self._before = Counters()
        self._recent: deque[int] = deque(maxlen=RECENT)
        self._waits: deque[int] = deque(maxlen=RECENT)
        self._pending: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []
        self._parts = Parts()
        self._usual: dict[int, int] = {}  # microseconds by stack, in typical steps
        self._random = Random(0)  # of its own: the program's must not be drawn from
        self.typical_ns = 0
        self.typical_wait_ns = 0
        self.disturbed_ns = 0  # by which steps were longer that were recorded or held up
        self.count = self.total_ns = self.excess_ns = self.far = 0
        self._known, self._heard = -1, 0  # the last step that was heard of; how often one was
        self.numbers, self.excess = array("q"), array("q")

    def edge(self, clock: StepClock) -> None:
        """A step has ended, or several short ones have, and the clock knows how long they took.

        The others of several were alike, and typical.
        """
        number = len(clock.interval_ns) - 1
        steps, self._known = max(number - self._known, 1), number
        if steps > 1:
            self._count_others(clock, number, steps - 1)
        if (
            self._sampler.recent_looks
            or self.count < JUDGED_FROM
            or self._stands_out(clock, number)
        ):
            self._edge(clock, number)
        else:
            self._spans.take()
            self._parts.count_unseen()
            self._count(clock.interval_ns[number], clock.wait_ns[number])

    def _count_others(self, clock: StepClock, last: int, steps: int) -> None:
        if last not in clock.disturbed:
            self.count += steps
            self.total_ns += steps * clock.interval_ns[last - 1]
            self._parts.count_unseen(steps)

    def _stands_out(self, clock: StepClock, number: int) -> bool:
        """Whether there is more to keep of this step than how long it took."""
        far = number < FIRST_STEPS or self._is_far(clock.interval_ns[number])
        return far or number in clock.disturbed or self._parts.full or not self.typical_ns

    def _edge(self, clock: StepClock, number: int) -> None:
        (seen, looks), (gc_ns, save_ns, called_at) = self._sampler.take(), self._spans.take()
        counters = self._counters()
        if number < 0 and self.count:
            self.__init__(self._sampler, self._spans)  # type: ignore[misc]  # steps of another kind
        if number == FIRST_STEPS - 1:
            self._sampler.begin_anew()
            self._sampler.follow(threading.get_native_id())
        if number < FIRST_STEPS or number in clock.disturbed:
            self._parts.skip()
        if number < FIRST_STEPS:
            return
        if number in clock.disturbed:
            self.disturbed_ns += max(clock.interval_ns[number] - self.typical_ns, 0)
            return
        took_ns, wait_ns = clock.interval_ns[number], clock.wait_ns[number]
        if not self.typical_ns or self._is_far(took_ns):
            # Others that wait have more of a step each than any one place of the thread of the
            # steps, and would be all that is kept.
            event = {
                "step": number,
                "ns": took_ns,
                "wait_ns": wait_ns,
                "gc_ns": gc_ns,
                "gc_called_at": called_at,
                "save_ns": save_ns,
                **counters,
                "looks": looks,
                "seen": of_this_thread(seen),
            }
            self._keep(event)
        elif seen:
            self._note_usual(of_this_thread(seen))
        if self.typical_ns and self._is_far(took_ns):
            self._parts.skip()
        else:
            self._parts.add(number, seen)
        self._count(took_ns, wait_ns)

    def _count(self, took_ns: int, wait_ns: int) -> None:
        self.count += 1
        self.total_ns += took_ns
        self._recent.append(took_ns)
        self._waits.append(wait_ns)
        self._heard += 1
        due = not self.typical_ns or self._heard % JUDGED_EVERY == 0
        if len(self._recent) >= JUDGED_FROM and due:
            self._judge()

    def overdue_in_s(self, clock: StepClock) -> float | None:
        """Until the present step is far longer than usual; negative: it is. None: not known."""
        return None if not self.typical_ns else self._far_ns() / 1e9 - clock.since_last_s

    def _note_usual(self, seen: dict[tuple[int, int], int]) -> None:
        """What the thread of the steps was seen at in a typical step."""
        for (_, number), took in seen.items():
            self._usual[number] = self._usual.get(number, 0) + took

    def settle(self) -> None:
        """Judge the steps of a program that ends before there were enough of them."""
        if not self.typical_ns and self._recent:
            self._judge()

    def _is_far(self, took_ns: int) -> bool:
        return took_ns > self._far_ns()

    def _far_ns(self) -> float:
        return max(FAR_RATIO * self.typical_ns, self.typical_ns + FAR_NS)

    def _keep(self, event: dict[str, Any]) -> None:
        if not self.typical_ns:
            self._pending.append(event)
            return
        excess = event["ns"] - self.typical_ns
        self.far += 1
        self.excess_ns += excess
        if len(self.numbers) < MOST_NUMBERS:
            self.numbers.append(event["step"])
            self.excess.append(excess)
        seen = sorted(event["seen"].items(), key=lambda one: -one[1])[:MOST_STACKS]
        kept = event | {"excess_ns": excess, "seen": seen}
        if len(self._events) < MOST_EVENTS:
            self._events.append(kept)
        elif (place := self._random.randrange(self.far)) < MOST_EVENTS:
            self._events[place] = kept

    def _judge(self) -> None:
        recent, waits = sorted(self._recent), sorted(self._waits)
        self.typical_ns = recent[len(recent) // 2]
        self.typical_wait_ns = waits[len(waits) // 2]
        pending, self._pending = self._pending, []
        for event in pending:
            if self._is_far(event["ns"]):
                self._keep(event)
            else:
                self._note_usual(event["seen"])

    def _counters(self) -> dict[str, int | None]:
        """What the system's counters went on by since the last step, as of the last looks."""
        before, now = self._before, self._sampler.counters
        self._before = now
        return {
            "queued_ns": _less(now.queued_ns, before.queued_ns),
            "throttled_ns": _less(now.throttled_ns, before.throttled_ns),
            "faults": _less(now.faults, before.faults),
        }

    def document(self, clock: StepClock) -> dict[str, Any]:
        """Everything known of far steps, for the run folder; longest first."""
        every = max(len(clock.interval_ns) // MOST_FOR_MEDIAN, 1)
        steps = range(FIRST_STEPS, len(clock.interval_ns), every)
        usual = sorted(clock.interval_ns[i] for i in steps if i not in clock.disturbed)
        typical_ns = usual[len(usual) // 2] if usual else 0
        events = sorted(self._events, key=lambda one: -one["ns"])
        return {
            "typical_ns": typical_ns or self.typical_ns or None,
            "typical_wait_ns": self.typical_wait_ns,
            "count": self.count,
            "total_ns": self.total_ns,
            "far": self.far,
            "excess_ns": self.excess_ns,
            "far_steps": list(self.numbers),
            "far_excess_ns": list(self.excess),
            "events": events,
            "usual": sorted(self._usual.items(), key=lambda one: -one[1])[:MOST_USUAL],
            "queued_ns": self._queued_ns(),
            "parts": self._parts.document(clock),
        }

    def _queued_ns(self) -> int | None:
        """How long the thread of the steps was ready to run without a core, in the whole run."""
        first, last = self._sampler.first_counters, self._sampler.counters
        return None if first is None else _less(last.queued_ns, first.queued_ns)


def of_this_thread(seen: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    """Microseconds by thread and stack: those of the thread that asks, which makes the steps."""
    me = threading.get_ident()
    return {at: us for at, us in seen.items() if at[0] == me}


def _less(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before
