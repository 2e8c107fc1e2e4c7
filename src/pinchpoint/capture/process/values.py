"""One look at values: in one step between windows, at arguments of models, masks and labels.

Two steps of a program are looked at: an early one, and one after the windows, which then counts.
Neither is recorded or timed. For that step ``scaled_dot_product_attention`` and ``cross_entropy``
are replaced, unless the program compiles: torch.compile would see it and compile again. Calls of
modules are told of by the hook that marks steps. What fails leaves nothing behind: the program
comes first.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pinchpoint.capture.flow.work import MOST_WATCHES, RepeatedWork
from pinchpoint.capture.process.policy import compile_count
from pinchpoint.capture.process.ranks import Agreement, all_here
from pinchpoint.capture.process.rare_calls import RareCalls
from pinchpoint.capture.process.same_inputs import SameInputs
from pinchpoint.capture.process.stage import Stage
from pinchpoint.capture.process.stages import Stages
from pinchpoint.capture.process.value_facts import (
    Leaves,
    Pending,
    attention_mask,
    ignored_labels,
    padding,
)
from pinchpoint.capture.process.value_notes import Attention, Call, Loss, notes
from pinchpoint.capture.samples.own_code import is_own
from pinchpoint.capture.samples.stacks import relative
from pinchpoint.capture.windows.threads import graph_is_captured
from pinchpoint.inside.hooks import BATCH_GIVEN, MODEL_CALLED, MODEL_ENTERED
from pinchpoint.run_folder.layout import VALUES, VALUES_SCHEMA, write_json

ATTENTION = "scaled_dot_product_attention"
MASK_AT = 3  # its position among the arguments
LOSS = "cross_entropy"
IGNORED_AT = 4  # the same of the class that it leaves out
MOST_LOSSES = 8  # different shapes and places
FIRST_EDGES = 3  # before it a model may see something made up, to find its shapes
_ENDED = "it ended before its operations were followed through six steps"
_COMPILES = "the program compiles, and would compile again"
MOST_CALLS = 8  # of modules that are looked at in the step: micro-batches, one after the other
MOST_MASKS = 8  # different tensors: layers share one
_BETWEEN = (Stage.RECOVERING, Stage.WAITING)
_AFTER = (Stage.TIMING, Stage.DONE)


class ValuesLook:
    """Looks once or twice in a process, and writes ``values/rank….json``."""

    def __init__(self, session: Stages) -> None:
        self._session = session
        self._looks = 0
        self._after = self._active = False
        self._thread = 0
        self._cost_ns = 0
        self._calls: list[Call] = []
        self._batches: list[Call] = []
        self._attention: dict[Any, Attention] = {}
        self._masks: dict[Any, tuple[int, Pending, Any]] = {}
        self._losses: dict[Any, Loss] = {}
        self._flow = RepeatedWork(MOST_WATCHES)
        self._same = SameInputs(_place, self._flow.unseen)
        self._rare = RareCalls(lambda: session.clock.edges, _place)
        self._document: dict[str, Any] = {}
        self._agreement: Agreement | None = None
        self._undo: list[Callable[[], None]] = []
        self._stop_hearing: list[Callable[[], None]] = []

    def start(self) -> None:
        """Hear of calls from now on; the hook of modules stays until the last look is over."""
        for event, heard in (
            (MODEL_CALLED, _nothing),
            (MODEL_ENTERED, self._entered),
            (BATCH_GIVEN, self._given),
        ):
            self._stop_hearing.append(event.listen(heard, _nothing))
        self._session.looks.join(self)

    def stop(self) -> None:
        """No more looks."""
        self._session.watching = False
        self._put_back()
        self._active = False
        self._same.end()
        self._flow.end()
        while self._stop_hearing:
            self._stop_hearing.pop()()
        self._session.looks.leave(self)
        if (rare := self._rare.end()) and self._document:
            with contextlib.suppress(Exception):
                write_json(self._path(), self._document | {"rare": rare})

    @property
    def due(self) -> bool:
        """It stops once it is over; a program without torch it leaves alone."""
        return "torch" in sys.modules

    def step_ended(self) -> None:
        """An edge, before anything is recorded: write what was seen."""
        if self._same.watches or self._flow.watches:
            self._watched()
        if not self._active:
            return
        began_ns = time.perf_counter_ns()
        self._put_back()
        self._active = False
        try:
            self._write(began_ns)
        except Exception:  # a device that is lost, a full disk: the program comes first
            self._cost_ns = 0
        self._calls, self._batches, self._attention, self._masks = [], [], {}, {}
        self._losses = {}
        self._session.clock.disturb()
        if self._after and self._watches_more():
            self._session.clock.watch()
        elif self._after:
            self._over()

    def _watches_more(self) -> bool:
        """Whether calls and operations of some more steps are compared now."""
        if self._document:
            why_not = _COMPILES if compile_count() else ""
            if not why_not:
                with contextlib.suppress(Exception):  # torch before 2.1 has no such hooks
                    self._same.begin()
                with contextlib.suppress(Exception):
                    self._flow.begin()
                why_not = self._flow.why_not
            if why_not:
                self._document["work_not_seen"] = why_not
                with contextlib.suppress(Exception):
                    write_json(self._path(), self._document)
        return self._same.watches or self._flow.watches

    def _watched(self) -> None:
        """Another of the steps after the look, in which work is compared, has ended."""
        self._session.clock.disturb()
        began_ns = time.perf_counter_ns()
        more: dict[str, Any] = {}
        for one, ended in ((self._same, self._compared_calls), (self._flow, self._compared_work)):
            try:
                more |= ended() if one.watches else {}
            except Exception:  # the program comes first
                one.end()
        took_ns = time.perf_counter_ns() - began_ns
        over = not (self._same.watches or self._flow.watches)
        if not over:
            self._session.clock.watch()
        else:
            took_ns += self._same.cost_ns + self._flow.cost_ns
        self._document |= more | {"cost_ns": self._document["cost_ns"] + took_ns}
        if more or over:
            with contextlib.suppress(Exception):
                write_json(self._path(), self._document)
        if over:
            self._over()

    def _over(self) -> None:
        """No more looks at steps; at what comes seldom, to the end."""
        self.stop()
        with contextlib.suppress(Exception):
            self._rare.begin()

    def _compared_calls(self) -> dict[str, Any]:
        again = self._same.step_ends()
        return {} if again is None else {"again": again}

    def _compared_work(self) -> dict[str, Any]:
        notes = self._flow.step_ends()
        if notes is None:
            return {}
        computed, views = self._flow.operators
        why_not = self._flow.why_not
        seen: dict[str, Any] = {"operators": computed, "views": views, "work_not_seen": why_not}
        if self._flow.loops and not why_not:
            seen["loops"] = self._flow.loops
        if self._flow.answers:
            seen["answers"] = self._flow.answers
        return {"work": None if why_not else notes, **seen}

    def _path(self) -> Path:
        return Path(self._session.settings.folder, VALUES, f"{self._session.identity.stem}.json")

    def step_begins(self) -> None:
        """An edge, after what belongs to the recording: look at the step that begins, if due."""
        session = self._session
        if "torch" not in sys.modules or self._active or self._same.watches or self._flow.watches:
            return
        after = session.stage in _AFTER
        early = session.stage in _BETWEEN and not self._looks
        early = early and session.clock.edges >= FIRST_EDGES and not session.quiet_busy
        over = session.stage is Stage.WAITING and session.clock.edges > FIRST_EDGES
        if session.identity.world_size == 1:
            whole = early and self._may_have_few_steps()
            if whole and not over:
                return  # until the recording of first steps is over
            session.watching = whole
        else:
            whole = over and self._ranks_look_now()
        if not (after or early or whole):
            return
        self._looks, self._after, self._active = self._looks + 1, after or whole, True
        self._thread, self._cost_ns = threading.get_ident(), 0
        session.clock.disturb()
        if not compile_count():
            self._replace(ATTENTION, self._seen)
            self._replace(LOSS, self._lost)

    def _may_have_few_steps(self) -> bool:
        """Whether all is to be looked at before steps are recorded. A person may have said which
        steps to record: then no recording waits for a look."""
        session = self._session
        as_asked = session.settings.repeat or session.settings.after_steps is not None
        return session.clock.long_steps and not as_asked

    def _ranks_look_now(self) -> bool:
        """The same for ranks of a job: they look at the same steps, and record the same ones after
        that. The first rank decides for all, if all of them can hear of it."""
        session = self._session
        folder, me = Path(session.settings.folder), session.identity
        if self._after or session.quiet_busy:
            return False
        if self._agreement is None:
            self._agreement = Agreement(folder, me, "look")
        ready = self._agreement.decides and self._may_have_few_steps() and all_here(folder, me)
        due = self._agreement.due(session.clock.edges, ready)
        session.watching = due or self._agreement.pending is not None
        return due

    # What is heard in the step

    def _mine(self) -> bool:
        mine = self._active and threading.get_ident() == self._thread
        return mine and not graph_is_captured()

    def _entered(self, model: Any, args: Any, kwargs: Any) -> None:
        if self._flow.watches:
            with contextlib.suppress(Exception):
                self._flow.seen_model(model)
        if len(self._calls) < MOST_CALLS and self._mine():
            with self._counted():
                named = _named(model, args) | dict(kwargs)
                self._calls.append(self._call("module", named, type(model).__name__))

    def _given(self, batch: Any) -> None:
        if len(self._batches) < MOST_CALLS and self._mine():
            with self._counted():
                self._batches.append(self._call("loader", batch, ""))

    def _call(self, source: str, given: Any, model: str) -> Call:
        torch = sys.modules["torch"]
        leaves = Leaves(torch)
        leaves.add(given)
        return Call(_place(), source, model, list(padding(torch, leaves.found)))

    def _seen(self, args: Any, kwargs: Any) -> None:
        mask = kwargs.get("attn_mask", args[MASK_AT] if len(args) > MASK_AT else None)
        query = kwargs.get("query", args[0] if args else None)
        torch = sys.modules["torch"]
        if type(mask) is not torch.Tensor or query is None or mask.dim() < 2 or not mask.numel():
            return
        size = tuple(mask.shape)
        version = None if mask.is_inference() else mask._version
        key = (mask.data_ptr(), size, mask.stride(), mask.dtype, version)
        if key not in self._masks:
            if len(self._masks) >= MOST_MASKS:
                return
            # The tensor is kept alive until the step ends, so that its address stays its own.
            self._masks[key] = (len(self._masks), attention_mask(torch, mask), mask)
        number, place = self._masks[key][0], _place()
        at = (place, number, tuple(query.shape))
        if at not in self._attention:
            dtype = str(mask.dtype).removeprefix("torch.")
            self._attention[at] = Attention(place, tuple(query.shape), size, dtype, number)
        self._attention[at].calls += 1

    def _lost(self, args: Any, kwargs: Any) -> None:
        target = kwargs.get("target", args[1] if len(args) > 1 else None)
        scores = kwargs.get("input", args[0] if args else None)
        ignored = kwargs.get("ignore_index", args[IGNORED_AT] if len(args) > IGNORED_AT else -100)
        torch = sys.modules["torch"]
        if type(target) is not torch.Tensor or target.is_floating_point() or scores.dim() < 2:
            return
        place, rows, classes = _place(), target.numel(), scores.shape[1]
        at = (place, rows, classes)
        if at not in self._losses:
            if len(self._losses) >= MOST_LOSSES or not rows:
                return
            self._losses[at] = Loss(place, rows, classes, ignored_labels(target, ignored))
        self._losses[at].calls += 1

    def _replace(self, name: str, heard: Callable[[Any, Any], None]) -> None:
        """In every module that has the function under its name; put back when the step ends."""
        original = getattr(sys.modules["torch"].nn.functional, name, None)
        if original is None:
            return

        def replaced(*args: Any, **kwargs: Any) -> Any:
            if self._mine():
                with self._counted():
                    heard(args, kwargs)
            return original(*args, **kwargs)

        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", None)
            if isinstance(names, dict) and names.get(name) is original:
                names[name] = replaced
                self._undo.append(_restore(names, name, replaced, original))

    def _put_back(self) -> None:
        while self._undo:
            self._undo.pop()()

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        began_ns = time.perf_counter_ns()
        try:
            with sys.modules["torch"].no_grad():
                yield
        except Exception:  # subclasses of tensors, transforms: what cannot be read is left out
            pass
        finally:
            self._cost_ns += time.perf_counter_ns() - began_ns

    # What becomes of it

    def _write(self, began_ns: int) -> None:
        session, masks = self._session, [one for _, one, _ in self._masks.values()]
        calls, losses, attention = self._calls, self._losses.values(), self._attention.values()
        seen = notes(sys.modules["torch"], calls, self._batches, attention, masks, losses)
        self._document = {
            "schema": VALUES_SCHEMA,
            "rank": session.identity.rank,
            "pid": os.getpid(),
            "step": session.clock.edges - 1,
            "attention_seen": not compile_count(),
            **seen,
            "cost_ns": self._cost_ns + time.perf_counter_ns() - began_ns,
            "work_not_seen": _ENDED,  # until it is
            "cudnn_allow_tf32": _allows_tf32(sys.modules["torch"]),
        }
        self._path().parent.mkdir(exist_ok=True)
        write_json(self._path(), self._document)


def _named(model: Any, args: Any) -> dict[str, Any]:
    """Positional arguments by the names that ``forward`` gives them, of a wrapped model too."""
    inner = getattr(model, "module", model)
    code = getattr(type(inner).forward, "__code__", None)
    names = code.co_varnames[1 : code.co_argcount] if code is not None else ()
    return {names[i] if i < len(names) else str(i): value for i, value in enumerate(args)}


def _allows_tf32(torch: Any) -> bool | None:
    """Whether convolutions may compute in TF32; None where a newer switch says otherwise."""
    with contextlib.suppress(Exception):
        return bool(torch.backends.cudnn.allow_tf32)
    return None


def _place() -> tuple[str, int, str] | None:
    """File, line and function of the user's own code: the innermost frame in no library."""
    frame = sys._getframe(1)
    roots = sorted({p.rstrip("/") + "/" for p in sys.path if p.startswith("/")}, key=len)[::-1]
    while frame is not None:
        code = frame.f_code
        if is_own(code.co_filename):
            return relative(code.co_filename, roots), frame.f_lineno, code.co_name
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _restore(names: dict[str, Any], name: str, ours: Any, original: Any) -> Callable[[], None]:
    def undo() -> None:
        if names.get(name) is ours:
            names[name] = original

    return undo


def _nothing(*_: Any) -> None:
    pass
