"""Programs without steps that a hook can see: serving, generation, hand-written loops.

A thread waits until the program has worked for a while without an optimizer step or a loader
batch and without compiling, then records everything for some seconds. A recording with next to
nothing in it, or made while something was compiled, is dropped, and after a longer interval it is
tried again. A program that still compiles after some seconds may do so in every step: that is
recorded once, too, and counts as long as there is nothing better.

Where names are wanted, an *early* recording is made as soon as the program works, which counts only
if it ends before the other one; and after that one another for names, as a session does.
"""

import math
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from pinchpoint.capture.process.budget import varying_ns
from pinchpoint.capture.process.long_calls import LOOK_AGAIN_S, wait_while_it_fits
from pinchpoint.capture.process.policy import CompileWatch, imports, is_helper, optimizer_exists
from pinchpoint.capture.process.ranks import begin_together
from pinchpoint.capture.process.session import LOOP, CaptureSession
from pinchpoint.capture.process.stage import Stage
from pinchpoint.capture.process.stalls import (
    STALLED_S,
    UNKNOWN_S,
    WARM_UP_S,
    WARM_UP_STEPS,
    WINDOW_STALLED_S,
    stopped,
)
from pinchpoint.capture.process.unmarked import SOON_S, look_for_loops, rounds_were_all
from pinchpoint.capture.settings import (
    BARE,
    EARLY_AFTER_S,
    FIRST_AFTER_S,
    Kind,
    Settings,
    chosen,
    with_names,
)
from pinchpoint.capture.windows import jax_works, new_window
from pinchpoint.capture.windows.recording import HELD_UP, JaxWindow, Recording, remove_file
from pinchpoint.capture.windows.threads import in_main_thread, join_in_turns
from pinchpoint.run_folder.layout import NAMES, REQUEST_FILE, TRACES

DEFAULT_S = Settings.seconds  # who asks for another length gets it
TRIAL_S = 0.05  # of a recording by which its cost is known: ten steps of a small model
NAMES_S = 1.0  # at most: names repeat, and stacks of all threads are many
TRIES = 5  # each after twice the time of the one before; compiling starts the time anew
ENOUGH_OPERATIONS = 50  # a step of a small model has more
IDLE = "hardly anything was done"
BEGINS_WITHIN_S = 0.2  # the profiler
LOOK_EVERY_S = 0.25  # walks the stacks of all threads, so not more often
REQUEST_EVERY_S = 1.0  # who asked waits this long at most
END_WITHIN_S = 60.0  # a large recording takes seconds to write, and the program must end
FIRST_STEP_WITHIN_S = 30.0  # with an optimizer, steps are to be expected; the first one is slow
COMPILED_WITHIN_S = 180.0  # a program that compiles for longer than this compiles in its steps
# A start-up compiles for seconds to minutes, a program that compiles in each step until it ends:
# what is recorded by then costs little, and is dropped where the first was the case.
COMPILES_ON_S = 10.0


class QuietWatch:
    """The thread; it ends as soon as the program shows steps."""

    def __init__(self, session: CaptureSession) -> None:
        self._session, self._settings = session, session.settings
        self._end = threading.Event()
        self._started = time.monotonic()
        self._compiling = CompileWatch()
        self._attempts, self._early = 0, False
        self._compiles_since: float | None = None  # infinite: that was recorded
        self._cost_ratio: dict[bool, float] = {}  # of bare ones or not: writing to recording
        self._dropped: str | None = None  # why the last recording was not worth keeping
        self._thread = threading.Thread(target=self._run, name="pinchpoint-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def end(self) -> None:
        """End a recording that is open, and wait until it is written."""
        self._end.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            join_in_turns(self._thread, END_WITHIN_S)

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # the user's program comes first
            self._session.problems.append(f"{type(error).__name__}: {error}".splitlines()[0])
        finally:
            self._session.quiet_busy = False
            self._session.loops.give_up()

    def _watch(self) -> None:
        began: float | None = None
        tries = 0
        while tries < TRIES and not self._end.wait(self._look_again_s()):
            if self._session.stage in (Stage.TIMING, Stage.DONE):
                if rounds_were_all(self._session):
                    return
                continue
            if self._session.stage is not Stage.WAITING:
                self._end_what_stalls()
                continue
            if self._steps_come() or self._still_compiles() or imports():
                began = None  # not yet: the time starts anew
                self._record_compiling()
                continue
            began = began if began is not None else self._work_began()
            soon = self._look_for_loops(works=began is not None)
            waited = 0.0 if began is None else time.monotonic() - began
            if soon or began is None or waited < self._longest_wait_s() * 2**tries:
                self._record_early(None if soon and waited < SOON_S else began)
                continue
            recording = self._record()
            tries += 1
            if recording is None:
                return
            if self._keep(recording, last=tries == TRIES):
                self._record_names()
                break
            began = None
        self._session.loops.give_up()
        self._say_what_was_dropped()
        self._answer_requests()

    def _record_early(self, began: float | None) -> None:
        """Once, and neither where an optimizer is to step, whose first steps a session records, nor
        in a job, whose ranks would wait for each other while they start."""
        wanted = self._settings.names and self._settings.after_s is None and not self._early
        if not wanted or began is None or time.monotonic() - began < EARLY_AFTER_S:
            return
        self._early = True
        if not self._will_step() and self._session.identity.world_size == 1:
            self._keep_early(self._why_rejected)

    def _keep_early(self, why_not: Callable[[Recording], str | None], kind: Kind = "early") -> None:
        recording = self._record(kind)
        if recording is None:
            return
        # Steps that came meanwhile may end before they are recorded: it is kept until they are.
        if self._session.recordings or why_not(recording) is not None:
            self._remove(recording, TRACES)
            return
        self._session.keep(replace(recording, window="early"))
        self._session.save()

    def _record_compiling(self) -> None:
        """Once, where it compiles and compiles: such a program may be made of steps that do.

        Bare, since stacks of a compiler are many, and have crashed one; samples know the place.
        """
        now = time.monotonic()
        if self._steps_come() or imports() or self._work_began() is None:
            return
        self._compiles_since = self._compiles_since or now
        if now < self._compiles_since + COMPILES_ON_S:
            return
        self._compiles_since = math.inf
        self._keep_early(self._why_empty, "times")
        if not self._session.recordings:
            self._dropped = "something was compiled, and nothing else done,"

    def _record_names(self) -> None:
        """What was just recorded once more, for names and places."""
        there = [r for r in self._session.recordings if r.window == "names"]
        have = any(not r.provisional for r in there)
        if not self._settings.names or have or self._end.is_set() or "torch" not in sys.modules:
            return  # other profilers have no bare kind
        recording = self._record("names")
        if (
            recording is None
            and not there
            and (self._session.budget.half_spent or not self._names_fit())
        ):
            without = self._session.budget.without_names(f"--seconds {TRIAL_S}")
            self._session.problems.append(without)
        if recording is not None and self._why_rejected(recording) is None:
            self._session.keep(replace(recording, window="names"))
        elif recording is not None:
            self._remove(recording, NAMES)
        self._session.save()

    def _remove(self, recording: Recording, part: str) -> None:
        if recording.file is not None:
            remove_file(Path(self._settings.folder, part, recording.file.name))

    def _answer_requests(self) -> None:
        """Record again whenever somebody asks (``pinchpoint attach``), until steps are seen."""
        request, answered = Path(self._settings.folder) / REQUEST_FILE, 0
        while not self._end.wait(REQUEST_EVERY_S) and not self._session.clock.edges:
            try:
                stamp = request.stat().st_mtime_ns
            except OSError:
                continue
            if stamp != answered and (recording := self._record()) is not None:
                answered = stamp
                self._session.keep(recording)
                self._session.save()

    def _steps_come(self) -> bool:
        """Whether the program makes steps that a hook sees."""
        session = self._session
        if session.clock.edges > 0:
            calls = session.steps_by == "module" and session.clock.edges <= WARM_UP_STEPS
            brief = calls or session.steps_by == LOOP
            return not stopped(session.clock, WARM_UP_S if brief else STALLED_S)
        return session.fetches > 1 and not stopped(session.fetch_clock)

    def _look_again_s(self) -> float:
        return LOOK_AGAIN_S if self._session.stage is Stage.RECORDING else LOOK_EVERY_S

    def _end_what_stalls(self) -> None:
        """A window that was opened for steps which no longer come records until the end."""
        session, main = self._session, threading.main_thread().ident
        if session.trial_is_long() and session.thread == main and not self._still_compiles():
            in_main_thread(partial(session.carefully, session.bound_trial))
            return
        known = len(session.clock.interval_ns) > 0
        least_s = STALLED_S if session.steady_recorded else WINDOW_STALLED_S
        if not stopped(session.clock, least_s if known else UNKNOWN_S):
            return
        if session.thread == main:
            in_main_thread(partial(session.carefully, session.abandon))
        elif session.stage is not Stage.RECORDING:  # nobody can end it from here
            session.carefully(session.abandon)

    def _will_step(self) -> bool:
        return optimizer_exists() and not self._settings.cell

    def _still_compiles(self) -> bool:
        """Whether a recording should wait for compilation to end; not if it never does."""
        told_when = self._settings.after_s is not None
        tired = time.monotonic() - self._started > COMPILED_WITHIN_S
        return self._compiling.busy() and not told_when and not tired

    def _longest_wait_s(self) -> float:
        if self._settings.after_s is not None:
            return self._settings.after_s
        expected = self._will_step() and not self._session.clock.edges
        return FIRST_STEP_WITHIN_S if expected else FIRST_AFTER_S

    def _work_began(self) -> float | None:
        """When to start counting: the device is in use, or the framework is there."""
        torch = sys.modules.get("torch")
        if torch is not None and getattr(torch.__spec__, "_initializing", False):
            return None
        if is_helper():
            return None
        if torch is not None and torch.cuda.is_initialized():
            return time.monotonic()
        if jax_works() and self._on_its_own():
            self._session.calls.begin()
            return time.monotonic()  # torch may be there beside it, for its loaders alone
        if torch is not None and torch.cuda.is_available():
            return None
        if self._on_its_own() and (torch is not None or "jax" in sys.modules):
            return time.monotonic()
        return None

    def _look_for_loops(self, *, works: bool) -> bool:
        alone = works or (self._on_its_own() and not is_helper())
        return alone and look_for_loops(self._session, works=works)

    def _on_its_own(self) -> bool:
        """Not a helper process: the launcher started it, or it has a rank."""
        child_of_launcher = os.getppid() == self._settings.launcher_pid
        return child_of_launcher or self._session.identity.launched

    def _record(self, kind: Kind = "times") -> Recording | None:
        """One recording by time; None if there is nothing to record with, or this rank should not.

        What it costs is tried out first by a short one, which has to do where more does not fit.
        """
        identity, wanted = self._session.identity, self._settings.ranks
        if not chosen(wanted, identity.rank, identity.world_size):
            return None
        seconds = (
            self._settings.seconds if kind == "times" else min(self._settings.seconds, NAMES_S)
        )
        if not self._settings.bounded or identity.world_size > 1:
            return self._record_for(kind, seconds)
        trial = None
        if (kind in BARE) not in self._cost_ratio:
            trial = self._record_for(kind, min(TRIAL_S, seconds))
        fits_s = self._fits_s(kind)
        enough = fits_s <= TRIAL_S or self._session.budget.half_spent
        if enough and (trial is not None or kind == "names"):
            return trial
        most_s = fits_s if kind == "times" and self._settings.seconds == DEFAULT_S else 0.0
        recording = self._record_for(kind, min(seconds, max(fits_s, TRIAL_S)), most_s)
        if trial is None or recording is None or trial.is_same_file(recording):
            return recording
        # A program that ended meanwhile may have done its last work in the trial.
        worse = recording.file is None
        worse = worse or (self._end.is_set() and self._why_rejected(recording) is not None)
        self._remove(recording if worse else trial, NAMES if kind == "names" else TRACES)
        return trial if worse else recording

    def _names_fit(self) -> bool:
        return self._fits_s("names") >= TRIAL_S

    def _fits_s(self, kind: Kind) -> float:
        """How long a recording of a kind may take, by what the ones before it cost."""
        ratio = self._cost_ratio.get(kind in BARE, 0.0)
        return self._session.budget.left_ns(kind) / 1e9 / max(ratio, 1e-9)

    def _record_for(self, kind: Kind, seconds: float, most_s: float = 0.0) -> Recording | None:
        """One recording, longer where calls are long, up to ``most_s``.

        Ranks of a job begin together, or nobody could tell who waits for whom.
        """
        identity, wanted = self._session.identity, self._settings.ranks
        settings = self._settings if kind in BARE else with_names(self._settings)
        part = Path(self._settings.folder, NAMES if kind == "names" else TRACES)
        window = new_window(settings, part, identity.stem, all_threads=True)
        if window is None:
            return None
        self._session.quiet_busy = True
        try:
            window.prime()
            opened = time.monotonic()
            window.open()
            self._end.wait(min(BEGINS_WITHIN_S, seconds))
            world = range(identity.world_size)
            ranks = sum(chosen(wanted, rank, len(world)) for rank in world)
            self._attempts += 1
            folder = Path(self._settings.folder)
            before, seen = self._marks(), self._marks
            begin_together(
                folder, identity, ranks, self._attempts, self._end, lambda: seen() != before
            )
            window.step()
            wanted_s = seconds if seen() == before or ranks < 2 else 0.0
            self._wait_while_it_fits(wanted_s, most_s if ranks < 2 else wanted_s)
            closed = time.monotonic()
            recording = window.close()
            writing = time.monotonic() - closed
            varies_s = varying_ns(1e9 * writing, recording.file) / 1e9
            ratio = varies_s / max(closed - opened, seconds, 1e-9)
            alike = isinstance(window, JaxWindow)  # it knows no other kind
            self._cost_ratio |= dict.fromkeys((True, False) if alike else (kind in BARE,), ratio)
            self._session.budget.spent_ns += round(writing * 1e9)
            return recording
        finally:
            self._session.quiet_busy = False

    def _marks(self) -> int:
        """Steps and batches so far: once they come, no rank waits for others."""
        return self._session.clock.edges + self._session.fetches

    def _wait_while_it_fits(self, wanted_s: float, most_s: float = 0.0) -> None:
        """Until the time is over, the program ends, or it has grown by what --max-size allows."""
        problem = wait_while_it_fits(self._end, self._settings.max_bytes, wanted_s, most_s)
        self._session.problems += [] if problem is None else [problem]

    def _keep(self, recording: Recording, *, last: bool) -> bool:
        """Keep a recording that holds something, and is not overtaken by steps."""
        overtaken = self._session.stage is not Stage.WAITING or self._steps_come()
        why = None if overtaken else self._why_rejected(recording)
        empty = recording.file is None or recording.file.operators == 0  # a launcher of ranks, say
        if not overtaken and (why is None or (last and not empty)):
            self._dropped = None
            self._session.keep(recording, names_follow=self._names_fit())
            self._session.stage, self._session.by_time = Stage.DONE, True
            self._session.save()  # what it takes the place of is gone from the folder
            return True
        self._dropped = why
        self._remove(recording, TRACES)
        return False

    def _why_rejected(self, recording: Recording) -> str | None:
        return "something was compiled" if self._still_compiles() else self._why_empty(recording)

    def _why_empty(self, recording: Recording) -> str | None:
        file = recording.file
        if file is None or file.operators is None:
            return HELD_UP if recording.problem == HELD_UP else None
        if file.operators + (file.kernels or 0) < ENOUGH_OPERATIONS:
            return IDLE
        torch = sys.modules.get("torch")
        on_device = torch is not None and torch.cuda.is_initialized()
        return "no kernel ran" if on_device and not file.kernels else None

    def _say_what_was_dropped(self) -> None:
        """Not of idle processes: a launcher of ranks is one."""
        if self._dropped not in (None, IDLE):
            early = "only an early recording" if self._session.recordings else "nothing"
            self._session.problems.append(
                f"{early} was kept: {self._dropped} while it was recorded; let the program run "
                "longer, or say when its steady work begins: pinchpoint run --after-seconds N …"
            )
