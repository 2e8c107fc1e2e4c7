"""What torch and JAX tell of a program: a step ended, a batch came, an iterator was made.

>>> stop = OPTIMIZER_STEPPED.listen(lambda optimizer: ..., lambda module, error: ...)

The program is patched once, however many listen, and only for what is listened to.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, Callable

from .after_import import Failed, after_import

Undo = Callable[[], bool]  # whether everything is as it was


_EVENTS: list[Event] = []


def _hear_nothing() -> None:
    """This is a copy of the process, made by a fork."""
    for event in _EVENTS:
        event.forget()


# Not asked for at each call of a model: who a process is takes a tenth of what a short one takes.
if hasattr(os, "register_at_fork"):  # not where processes cannot fork
    os.register_at_fork(after_in_child=_hear_nothing)


class Event:
    """Something that happens in the program, told to all who listen in this process.

    A forked copy of the process hears nothing, unless it begins to listen itself.
    """

    def __init__(self, module: str, patch: Callable[[Any, Event], Undo]) -> None:
        self._module, self._patch = module, patch
        self.listeners: list[Callable[..., None]] = []
        self._undo: Undo | None = None
        _EVENTS.append(self)

    def listen(self, heard: Callable[..., None], failed: Failed) -> Callable[[], None]:
        """Call ``heard`` each time, from when the program has the module; returns how to stop.

        ``failed(module, error)`` is called if the module cannot be patched.
        """
        self.listeners.append(heard)
        take_back = after_import(self._module, self._put_on, failed)

        def stop() -> None:
            take_back()
            if heard in self.listeners:
                self.listeners.remove(heard)
            if not self.listeners and self._undo is not None and self._undo():
                self._undo = None

        return stop

    @property
    def wanted(self) -> bool:
        """Whether anybody listens in this process."""
        return bool(self.listeners)

    def forget(self) -> None:
        """Who listened did so in another process."""
        self.listeners = []

    def tell(self, *what: Any) -> None:
        """It happened."""
        for heard in tuple(self.listeners):
            heard(*what)

    def _put_on(self, module: Any) -> None:
        if self._undo is None:
            self._undo = self._patch(module, self)


def _replace(kind: Any, name: str, replacement: Any) -> Undo:
    original = getattr(kind, name)
    setattr(kind, name, replacement)

    def undo() -> bool:
        if getattr(kind, name) is not replacement:
            return False  # somebody has wrapped ours since
        setattr(kind, name, original)
        return True

    return undo


def _hook_optimizers(module: Any, event: Event) -> Undo:
    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        if event.wanted:
            event.tell(optimizer)

    return _register(module, stepped)


def _hook_eager_optimizers(module: Any, event: Event) -> Undo:
    torch = sys.modules["torch"]

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        compiler: Any = getattr(torch, "compiler", None)  # torch 2.1, and the question later
        if hasattr(compiler, "is_compiling") and compiler.is_compiling():
            return  # torch.compile traces this hook: to it, there must be nothing here
        if event.wanted:
            event.tell(optimizer)

    return _register(module, stepped)


def _register(module: Any, stepped: Callable[[Any, Any, Any], None]) -> Undo:
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None:
        raise RuntimeError("torch before 2.0 does not tell of optimizer steps")
    handle = register(stepped)

    def undo() -> bool:
        handle.remove()
        return True

    return undo


def _hook_next_batch(module: Any, event: Event) -> Undo:
    next_batch = module._BaseDataLoaderIter.__next__

    def __next__(self: Any) -> Any:  # noqa: N807 - replaces the method of that name
        if not event.wanted:
            return next_batch(self)
        start_ns, got = time.perf_counter_ns(), False
        try:
            batch = next_batch(self)
            got = True
        finally:
            event.tell(start_ns, time.perf_counter_ns(), self, got)
        if BATCH_GIVEN.wanted:
            BATCH_GIVEN.tell(batch)
        return batch

    return _replace(module._BaseDataLoaderIter, "__next__", __next__)


def _hook_new_iterator(module: Any, event: Event) -> Undo:
    make_iterator = module.DataLoader.__iter__

    def __iter__(self: Any) -> Any:  # noqa: N807
        start_ns = time.perf_counter_ns()
        iterator = make_iterator(self)
        if event.wanted:
            event.tell(time.perf_counter_ns() - start_ns, self)
        return iterator

    return _replace(module.DataLoader, "__iter__", __iter__)


def _hook_modules(module: Any, event: Event) -> Undo:
    """Wrap the call of all modules, and tell of those that no other module called."""
    kind = sys.modules["torch.nn.modules.module"].Module
    called, inside = kind.__call__, threading.local()
    compiles = getattr(module, "is_compiling", None)
    if compiles is None:
        raise RuntimeError("torch before 2.2 does not tell whether it compiles a call")

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        if compiles():
            return called(self, *args, **kwargs)  # torch.compile is to see nothing of this
        if getattr(inside, "module", False) or not event.listeners:
            return called(self, *args, **kwargs)
        inside.module = True
        try:
            if MODEL_ENTERED.listeners:
                MODEL_ENTERED.tell(self, args, kwargs)
            answer = called(self, *args, **kwargs)
        finally:
            inside.module = False
        event.tell(self)
        return answer

    return _replace(kind, "__call__", __call__)


def _told_by_another(module: Any, event: Event) -> Undo:
    """Nothing to patch: the patch of the event that it goes with asks whether anybody listens."""
    return lambda: True


def _hook_graphs(module: Any, event: Event) -> Undo:
    replay = module.CUDAGraph.replay

    def replayed(self: Any) -> None:
        replay(self)
        if event.wanted:
            event.tell(self)

    return _replace(module.CUDAGraph, "replay", replayed)


def _hook_annotations(module: Any, event: Event) -> Undo:
    annotation = module.StepTraceAnnotation
    enter = annotation.__enter__

    def __enter__(step: Any) -> Any:  # noqa: N807
        if event.wanted:
            event.tell()
        return enter(step)

    return _replace(annotation, "__enter__", __enter__)


OPTIMIZER_STEPPED = Event("torch.optim.optimizer", _hook_optimizers)
"""``heard(optimizer)`` after a step of any torch optimizer. Costs a compiled step a graph break."""

EAGER_OPTIMIZER_STEPPED = Event("torch.optim.optimizer", _hook_eager_optimizers)
"""``heard(optimizer)`` after a step that is not compiled; compiled ones stay as they are."""

BATCH_FETCHED = Event("torch.utils.data.dataloader", _hook_next_batch)
"""``heard(start_ns, end_ns, iterator, got)``: the program waited; ``got``: and has a batch now."""

ITERATOR_BUILT = Event("torch.utils.data.dataloader", _hook_new_iterator)
"""``heard(duration_ns, loader)``: an iterator was made, which is where workers start."""

MODEL_CALLED = Event("torch.compiler", _hook_modules)
"""``heard(module)`` after a call of a module from outside of modules. Costs 0.3 µs a module."""

MODEL_ENTERED = Event("torch.compiler", _told_by_another)
"""``heard(module, args, kwargs)`` before that call, as long as somebody hears MODEL_CALLED."""

BATCH_GIVEN = Event("torch.utils.data.dataloader", _told_by_another)
"""``heard(batch)`` after BATCH_FETCHED, as long as somebody hears that."""

GRAPH_REPLAYED = Event("torch.cuda.graphs", _hook_graphs)
"""``heard(graph)`` after a CUDA graph was launched by ``replay``."""

STEP_ANNOTATED = Event("jax.profiler", _hook_annotations)
"""``heard()``: the program enters a ``jax.profiler.StepTraceAnnotation``."""
