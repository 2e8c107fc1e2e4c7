"""What is seen of one process over the whole run, and the file that it becomes."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pinchpoint.capture.process.calls_look import CallsLook
from pinchpoint.capture.process.session import CaptureSession
from pinchpoint.capture.process.stage import Stage
from pinchpoint.capture.samples.caches import Caches
from pinchpoint.capture.samples.far_steps import FarSteps
from pinchpoint.capture.samples.foresight import Foresight
from pinchpoint.capture.samples.sampler import Sampler
from pinchpoint.capture.samples.spans import Spans
from pinchpoint.capture.samples.spelling import in_rows, spell
from pinchpoint.capture.samples.stacks import installed_packages, spelt_stack
from pinchpoint.capture.samples.usage import usage
from pinchpoint.run_folder.layout import (
    PROCESSES,
    SAMPLES,
    SAMPLES_SCHEMA,
    SAVING_RATIO,
    STEPS_SUFFIX,
    write_json,
)

FEWEST_LOOKS = 10  # of a process without steps: a fifth of a second
MOST_AFTER = 100  # stacks after the last step, most time first
FIRST_SAVE_S = 5.0  # a program that is killed has left something by then
COUNT_EVERY_S = 1.0  # steps by now, for one that is killed: some 10 µs


class WholeRun:
    """Sampler, spans and far steps of a process; written when it ends, and now and then before."""

    def __init__(self, session: CaptureSession) -> None:
        self._session = session
        self.spans = Spans()
        self.sampler = Sampler(
            self._paused,
            after_look=self._maybe_save,
            overdue_in_s=lambda: self.far.overdue_in_s(session.clock),
        )
        self.far = FarSteps(self.sampler, self.spans)
        self._foresight = Foresight(self.far)
        self._undo_gc: Callable[[], None] = _nothing
        self._started = False
        self._after: list[tuple[int, int]] = []  # microseconds by stack
        self._after_ns: int | None = None
        self._caches = Caches()
        self._calls = CallsLook(session, self.sampler)
        self._save_at = time.monotonic() + FIRST_SAVE_S
        self._count_at, self._counted = 0.0, 0

    def start(self) -> None:
        """Begin."""
        if self._started:
            return
        self._started = True
        self._session.stepped = self._stepped
        self._foresight.step_cost_ns = self._session.budget.named_step_ns
        self._session.foresight = self._foresight
        self._undo_gc = self.spans.watch_collections()
        self.sampler.start()
        if self._session.settings.names:
            self._calls.start()

    def finish(self) -> None:
        """Look no more, and write."""
        if not self._started:
            return
        self.sampler.end()
        self._calls.stop()
        self._undo_gc()
        self.far.settle()
        if self._session.clock.edges:
            self._settle_end()
        with contextlib.suppress(Exception):  # the user's program comes first
            self._caches.look()
        self.save()

    def forget_in_fork(self) -> None:
        """This is a forked copy, in which the thread does not run."""
        self._started = False
        self._undo_gc()
        self._calls.stop()

    def save(self) -> None:
        """Write what is known so far, if there is anything."""
        session = self._session
        worked = session.clock.edges or session.recordings
        if not worked and self.sampler.looks < FEWEST_LOOKS:
            return
        helps = not worked and _is_helper()
        name = f"child.{os.getpid()}" if helps else session.identity.stem
        path = Path(session.settings.folder) / SAMPLES / f"{name}.json"
        with contextlib.suppress(Exception):  # the user's program comes first
            path.parent.mkdir(exist_ok=True)
            write_json(path, self._document())

    @property
    def cost_ns(self) -> int:
        """What looking has cost so far: time of the looking thread, and of the program's own."""
        looking_ns = self.sampler.pace.cost_ns + self._calls.cost_ns
        return looking_ns + self._session.budget.edges_ns

    def _stepped(self) -> None:
        if self.spans.thread is None:
            self.spans.thread = threading.get_ident()
        self.far.edge(self._session.clock)

    def _paused(self) -> bool:
        return self._session.stage is Stage.RECORDING or self._session.quiet_busy

    def _maybe_save(self) -> None:
        pace, began_ns = self.sampler.pace, time.thread_time_ns()
        self._caches.maybe_look()
        self._maybe_count()
        due = time.monotonic() >= self._save_at
        if due:
            self.save()
        took_ns = time.thread_time_ns() - began_ns
        pace.once_ns += took_ns
        if due:
            elapsed_s = (time.perf_counter_ns() - pace.began_ns) / 1e9
            again_s = (pace.once_ns + took_ns) / 1e9 / SAVING_RATIO - elapsed_s
            self._save_at = time.monotonic() + max(again_s, FIRST_SAVE_S)

    def _maybe_count(self) -> None:
        """A process that is killed writes no end, and its own file is older than its last step."""
        now, session = time.monotonic(), self._session
        if now < self._count_at or session.clock.edges == self._counted:
            return
        self._count_at, self._counted = now + COUNT_EVERY_S, session.clock.edges
        path = Path(session.settings.folder, PROCESSES, session.identity.stem + STEPS_SUFFIX)
        with contextlib.suppress(OSError):
            path.write_text(str(self._counted))

    def _document(self) -> dict[str, Any]:
        sampled, steps = self.sampler.document(), self.far.document(self._session.clock)
        numbers = [number for event in steps["events"] for (_, number), _ in event["seen"]]
        numbers += [number for number, _ in steps["usual"]]
        by_part = [(part, key) for part in steps["parts"] for key in ("seen", "beside")]
        numbers += [number for part, key in by_part for number, _ in part[key]]
        main, after = self.spans.thread, self._after
        numbers += [number for number, _ in after]
        spelt, rows = spell(self.sampler.table, sampled, numbers)
        steps["usual"] = in_rows(steps["usual"], rows)
        for part, key in by_part:
            part[key] = in_rows(part[key], rows)
        return {
            "schema": SAMPLES_SCHEMA,
            "rank": self._session.identity.rank,
            "pid": os.getpid(),
            "parent": os.getppid() if _is_helper() else None,
            "started": os.getppid() == self._session.settings.launcher_pid,
            "cost_ns": self.cost_ns,
            **spelt,
            "sampled": sampled,
            "steps": steps | {"events": [_event(e, rows, main) for e in steps["events"]]},
            "after": in_rows(after, rows),
            "after_ns": self._after_ns,
            "usage": usage(),
            "garbage": self._garbage(),
            "tensor_files": self.spans.files.document(),
            "caches": self._caches.document(),
            "calls": self._calls.document,
            "operands": self.sampler.operands.document(),
            "called": self.sampler.calls.document(),
            "installed": installed_packages(),
        }

    def _garbage(self) -> dict[str, Any]:
        spans = self.spans
        return {
            "ns": spans.all_gc_ns,
            "collections": spans.collections,
            "called_ns": spans.called_gc_ns,
            "called_at": spelt_stack(spans.gc_called_at),
        }

    def _settle_end(self) -> None:
        """What the thread of the steps did since the last of them."""
        seen, _ = self.sampler.take()
        mine = [
            (number, us) for (thread, number), us in seen.items() if thread == self.spans.thread
        ]
        self._after = sorted(mine, key=lambda one: -one[1])[:MOST_AFTER]
        self._after_ns = round(1e9 * self._session.clock.since_last_s)


def _event(event: dict[str, Any], rows: dict[int, int], thread: int | None) -> dict[str, Any]:
    """A far step with what the thread of the steps did in it, by rows of the stacks."""
    seen = [
        [rows[number], looks]
        for (ident, number), looks in event["seen"]
        if ident == thread and number in rows
    ]
    return event | {"seen": seen, "gc_called_at": spelt_stack(event["gc_called_at"])}


def _is_helper() -> bool:
    """A process that multiprocessing started. One that was spawned knows its parent only once it
    has imported the program, and its command line from the beginning; so does its tracker."""
    processes = sys.modules.get("multiprocessing.process")
    by_line = any(word.startswith(_SPAWNED) for word in sys.orig_argv[1:])
    return by_line or (processes is not None and processes.parent_process() is not None)


_SPAWNED = ("--multiprocessing-fork", "from multiprocessing.")


def _nothing() -> None:
    pass
