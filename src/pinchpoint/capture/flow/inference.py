"""Where a program enters and leaves ``torch.inference_mode`` while a mode of ours is there.

Leaving it restores the dispatcher's keys as they were when the program entered. A mode that was
there by then, and was taken away inside, leaves its key behind: torch fails at the next operation
without tensors ("Hit Python dispatch key but no arguments had PyInterpreter"). One that was put
there inside loses its key, and hears nothing until something puts it back.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any


class InferenceModes:
    """Hears from now on, until ``stop``, when this thread enters and leaves inference modes.

    ``deaf`` is called where it enters one after having left the one that it is in now: what ran in
    between may not have been heard.
    """

    def __init__(self, torch: Any, deaf: Callable[[], None]) -> None:
        self._torch, self._thread, self._deaf = torch, threading.get_ident(), deaf
        self._inside = torch.is_inference_mode_enabled()
        self._entered = 0  # that it has not left yet
        self._due: Callable[[], None] | None = None
        kind = torch.autograd.grad_mode.inference_mode
        enters, leaves = kind.__enter__, kind.__exit__

        def __enter__(context: Any) -> Any:  # noqa: N807 - replaces that method
            self._enters()
            return enters(context)

        def __exit__(context: Any, *raised: Any) -> Any:  # noqa: N807
            answer = leaves(context, *raised)
            self._left()
            return answer

        kind.__enter__, kind.__exit__ = __enter__, __exit__
        self._undo: tuple[Callable[[], None], ...] = (
            partial(_put_back, kind, "__enter__", __enter__, enters),
            partial(_put_back, kind, "__exit__", __exit__, leaves),
        )

    def then(self, act: Callable[[], None]) -> None:
        """Do this now, or where this thread has left what it entered meanwhile."""
        if threading.get_ident() == self._thread and self._entered:
            self._due = act
        else:
            self.stop()
            act()

    def was_left(self) -> bool:
        """Whether the thread is out of the inference mode in which this began; told once."""
        here = threading.get_ident() == self._thread
        left = here and self._inside and not self._torch.is_inference_mode_enabled()
        self._inside = self._inside and not left
        return left

    def _enters(self) -> None:
        if threading.get_ident() == self._thread:
            if not self._entered and self.was_left():
                self._deaf()
            self._entered += 1

    def _left(self) -> None:
        if threading.get_ident() != self._thread:
            return
        self._entered = max(self._entered - 1, 0)
        if self._due is not None and not self._entered:
            due, self._due = self._due, None
            self.stop()
            due()

    def stop(self) -> None:
        """Hear no more."""
        for undo in self._undo:
            undo()


def _put_back(kind: Any, name: str, ours: Any, original: Any) -> None:
    if getattr(kind, name) is ours:
        setattr(kind, name, original)


def put_keys_back(torch: Any) -> None:
    """Let the modes of this thread hear of operations again."""
    c, modes = torch._C, []
    while c._len_torch_dispatch_stack():
        modes.append(c._pop_torch_dispatch_stack(None))
    for mode in reversed(modes):
        c._push_on_torch_dispatch_stack(mode)


def take_away(torch: Any, mode: Any) -> None:
    """Take a mode of this thread away, wherever it stands among others."""
    c, above = torch._C, []
    try:
        while c._len_torch_dispatch_stack():
            top = c._get_dispatch_stack_at(c._len_torch_dispatch_stack() - 1)
            if top is mode:
                mode.__exit__(None, None, None)
                break
            above.append(c._pop_torch_dispatch_stack(None))
    finally:
        for one in reversed(above):
            c._push_on_torch_dispatch_stack(one)
