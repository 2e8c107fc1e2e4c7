"""What is seen of one process over the whole run, and the file that it becomes."""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pinchpoint.capture.process.session import CaptureSession
from pinchpoint.capture.process.stage import Stage
from pinchpoint.capture.samples.far_steps import FarSteps
from pinchpoint.capture.samples.foresight import Foresight
from pinchpoint.capture.samples.sampler import Sampler
from pinchpoint.capture.samples.spans import Spans
from pinchpoint.capture.samples.stacks import spelt_stack
from pinchpoint.run_folder.layout import SAMPLES, SAMPLES_SCHEMA, write_json

FIRST_SAVE_S = 20.0  # a program that is killed has left something by then
SAVE_AGAIN_RATIO = 3.0  # of the time before: writing takes some 10 ms, and there are few of them


class WholeRun:
    """Sampler, spans and far steps of a process; written when it ends, and now and then before."""

    def __init__(self, session: CaptureSession) -> None:
        self._session = session
        self.spans = Spans()
        self.sampler = Sampler(
            self._paused,
            after_look=self._maybe_save,
            overdue=lambda: self.far.overdue(session.clock),
        )
        self.far = FarSteps(self.sampler, self.spans)
        self._foresight = Foresight(self.far)
        self._undo_gc: Callable[[], None] = _nothing
        self._started = False
        self._save_at = time.monotonic() + FIRST_SAVE_S

    def start(self) -> None:
        """Begin: the program has imported its framework."""
        if self._started:
            return
        self._started = True
        self._session.stepped = self._stepped
        self._foresight.step_cost_ns = self._session.budget.named_step_ns
        self._session.foresight = self._foresight
        self._undo_gc = self.spans.watch_collections()
        self.sampler.start()

    def finish(self) -> None:
        """Look no more, and write."""
        if not self._started:
            return
        self.sampler.end()
        self._undo_gc()
        self.far.settle()
        self.save()

    def forget_in_fork(self) -> None:
        """This is a forked copy, in which the thread does not run."""
        self._started = False
        self._undo_gc()

    def save(self) -> None:
        """Write what is known so far, if this process does the program's work."""
        session = self._session
        if not session.clock.edges and not session.recordings:
            return
        path = Path(session.settings.folder) / SAMPLES / f"{session.identity.stem}.json"
        with contextlib.suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            write_json(path, self._document())

    @property
    def cost_ns(self) -> int:
        """What looking has cost so far: time of the looking thread, and of the program's own."""
        return self.sampler.cost_ns + self.far.cost_ns

    def _stepped(self) -> None:
        if self.spans.thread is None:
            self.spans.thread = threading.get_ident()
        self.far.edge(self._session.clock)

    def _paused(self) -> bool:
        return self._session.stage is Stage.RECORDING or self._session.quiet_busy

    def _maybe_save(self) -> None:
        if time.monotonic() < self._save_at:
            return
        began = self.sampler.began_ns / 1e9
        self._save_at = time.monotonic() + SAVE_AGAIN_RATIO * (time.perf_counter() - began)
        self.save()

    def _document(self) -> dict[str, Any]:
        sampled, steps = self.sampler.document(), self.far.document(self._session.clock)
        numbers = [number for thread in sampled["threads"] for number, _ in thread["stacks"]]
        numbers += [number for event in steps["events"] for (_, number), _ in event["seen"]]
        numbers += [number for number, _ in (*steps["usual"], *sampled["start"])]
        by_part = [(part, key) for part in steps["parts"] for key in ("seen", "beside")]
        numbers += [number for part, key in by_part for number, _ in part[key]]
        frames, stacks = self.sampler.table.spelt(numbers)
        rows = {number: row for row, number in enumerate(stacks)}
        main = self.spans.thread
        for thread in sampled["threads"]:
            thread["stacks"] = [[rows[n], looks] for n, looks in thread["stacks"] if n in rows]
        sampled["start"] = [[rows[n], looks] for n, looks in sampled["start"] if n in rows]
        steps["usual"] = [[rows[n], us] for n, us in steps["usual"] if n in rows]
        for part, key in by_part:
            part[key] = [[rows[n], us] for n, us in part[key] if n in rows]
        return {
            "schema": SAMPLES_SCHEMA,
            "rank": self._session.identity.rank,
            "pid": os.getpid(),
            "cost_ns": self.cost_ns,
            "frames": frames,
            "stacks": list(stacks.values()),
            "sampled": sampled,
            "steps": steps | {"events": [_event(e, rows, main) for e in steps["events"]]},
        }


def _event(event: dict[str, Any], rows: dict[int, int], thread: int | None) -> dict[str, Any]:
    """A far step with what the thread of the steps did in it, by rows of the stacks."""
    seen = [
        [rows[number], looks]
        for (ident, number), looks in event["seen"]
        if ident == thread and number in rows
    ]
    return event | {"seen": seen, "gc_called_at": spelt_stack(event["gc_called_at"])}


def _nothing() -> None:
    pass
