"""Calls of solvers and sorts that come too seldom to be in a watched step.

What an optimizer, a metric or an evaluation does every twenty steps is in none of the six steps in
which operations are watched. From then on the functions that such work is made of are heard of: at
the first call from a place another way is tried on its arguments, and calls are counted. Where the
program compiles, nothing is replaced.
"""

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from pinchpoint.capture.flow.operations import kind_of, shapes_of
from pinchpoint.capture.flow.surroundings import free_bytes
from pinchpoint.capture.process.policy import compile_count
from pinchpoint.capture.ways.trials import WAYS, Trials, Tried
from pinchpoint.capture.windows.threads import graph_is_captured
from pinchpoint.frozen import dataclass

_LINALG: tuple[str, ...] = ("svd", "svdvals", "eig", "eigvals", "inv", "solve", "pinv")
_LINALG += ("det", "slogdet", "matrix_exp", "cond", "matrix_rank", "matrix_norm")
_TORCH = ("svd", "inverse", "pinverse", "det", "slogdet", "logdet", "matrix_exp", "unique", "sort")
_METHODS = ("svd", "inverse", "pinverse", "det", "slogdet", "logdet", "matrix_exp", "unique")
MOST_PLACES = 12  # at which ways are tried
MOST_CALLS = 5000  # that are counted, a microsecond each; more of them are not seldom
Place = tuple[str, int, str]


@dataclass
class _At:
    """Calls of one line of the program."""

    place: Place
    operator: str
    tried: Tried
    calls: int = 1


class RareCalls:
    """Hears of them from ``begin`` to ``end``."""

    def __init__(self, steps: Callable[[], int], place: Callable[[], Place | None]) -> None:
        self._steps, self._place = steps, place
        self._at: dict[Any, _At | None] = {}
        self._undo: list[Callable[[], None]] = []
        self._calls = self._from = 0
        self._inside = False
        self._trials: Trials | None = None

    def begin(self) -> None:
        """Hear of calls from now on."""
        torch = sys.modules.get("torch")
        if torch is None or compile_count() or self._undo or self._trials is not None:
            return
        _is_plain()  # raises in a torch that has no such question, before anything is replaced
        self._trials, self._from = Trials(torch, free_bytes), self._steps()
        for holder, names in (
            (torch.linalg, _LINALG),
            (torch, _TORCH),
            (torch.Tensor, _METHODS),
        ):
            for name in names:
                self._replace(torch, holder, name)

    def end(self) -> list[dict[str, Any]]:
        """Hear no more; what was quicker, with the calls and steps in which it was counted."""
        while self._undo:
            self._undo.pop()()
        steps = max(self._steps() - self._from, 1)
        return [
            {
                "place": one.place,
                "operator": one.operator,
                "way": one.tried.key,
                "tried_ns": one.tried.ns,
                "left_ratio": round(one.tried.ns_left / one.tried.ns, 6),
                "calls": one.calls,
                "steps": steps,
            }
            for one in self._at.values()
            if one is not None
        ]

    def _replace(self, torch: Any, holder: Any, name: str) -> None:
        original = getattr(holder, name, None)
        if original is None:
            return
        own = vars(holder).get(name)

        def hands_on(*args: Any, **kwargs: Any) -> Any:  # by this name looks know it
            if self._inside or torch.compiler.is_compiling():
                return original(*args, **kwargs)
            frame = sys._getframe(1)
            key = (frame.f_code, frame.f_lasti)
            if self._comes_first(key):
                return self._first(key, original, args, kwargs)
            return original(*args, **kwargs)

        if holder is not torch.Tensor and not _is_scripted_as(torch, hands_on, original):
            return
        setattr(holder, name, hands_on)

        def undo() -> None:  # the table of TorchScript has numbers of objects, which are used again
            torch.jit._builtins._get_builtin_table().pop(id(hands_on), None)
            if vars(holder).get(name) is not hands_on:
                return
            if own is None:
                delattr(holder, name)
            else:
                setattr(holder, name, own)

        self._undo.append(undo)

    def _comes_first(self, key: Any) -> bool:
        """Counts a call; whether it is the first one from a line."""
        self._calls += 1
        if self._calls > MOST_CALLS:
            self._stop_listening()
            return False
        one = self._at.get(key)
        if one is not None:
            one.calls += 1
        return key not in self._at and len(self._at) < MOST_PLACES and _is_plain()

    def _stop_listening(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _first(self, key: Any, original: Any, args: Any, kwargs: Any) -> Any:
        """The first call from a line: what it asks the dispatcher for is tried."""
        self._inside, self._at[key] = True, None
        try:
            with self._mode(key):
                answer = original(*args, **kwargs)
        finally:
            self._inside = False
        with contextlib.suppress(Exception):
            assert self._trials is not None
            mine = (p for p in self._trials.by_place() if p[0][2] == key and p[1] is not None)
            (operator, _, _), tried = next(mine)
            place = self._place()
            self._at[key] = None if place is None or tried is None else _At(place, operator, tried)
        return answer

    def _mode(self, key: Any) -> Any:
        """Told of each operation of a call."""
        trials = self._trials
        dispatch = sys.modules["torch.utils._python_dispatch"].TorchDispatchMode
        torch = sys.modules["torch"]

        class Heard(dispatch):  # type: ignore[misc, valid-type]
            @classmethod
            def _should_skip_dynamo(cls) -> bool:
                return "torch._dynamo" in sys.modules

            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                kwargs = kwargs or {}
                with contextlib.suppress(Exception):
                    assert trials is not None
                    kind = kind_of(func)
                    plain = all(one in (torch.Tensor, torch.nn.Parameter) for one in types)
                    if kind.name in WAYS and plain:
                        given = [one for one in args if isinstance(one, torch.Tensor)]
                        trials.look((0, 0), kind, shapes_of(given), key, (func, args, kwargs))
                return func(*args, **kwargs)

        return Heard()


def _is_scripted_as(torch: Any, ours: Any, original: Any) -> bool:
    """Has TorchScript take ours for what it stands for, which it looks up by the object."""
    chosen = torch._jit_internal.boolean_dispatched
    if original in chosen:  # one of two functions, by an argument
        chosen[ours] = chosen[original]
        return True
    name = torch.jit._builtins._find_builtin(original)
    if name is not None:
        torch.jit._builtins._register_builtin(ours, name)
    return name is not None


def _is_plain() -> bool:
    """Whether a call is no part of a graph that is captured, of a transform, or of another mode."""
    c = sys.modules["torch"]._C
    transformed = c._functorch.peek_interpreter_stack() is not None
    return not (transformed or graph_is_captured() or c._len_torch_dispatch_stack())
