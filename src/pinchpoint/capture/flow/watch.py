"""Hears of every operation of some steps, and of what reads tensors without one.

A mode of the dispatcher is told of each operation below autograd, in the thread of the steps and,
as torch hands modes on, in those of the backward pass. It calls the operation as it was and gives
what that gives. Nothing is heard of where the program has a mode of its own, uses subclasses of
tensors, or makes more operations than can be looked at in time.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from typing import Any

from pinchpoint.capture.flow.alike_rows import LOOKS_UP, SameIds
from pinchpoint.capture.flow.copies_of_process import UNDER_WAY
from pinchpoint.capture.flow.inference import InferenceModes, put_keys_back, take_away
from pinchpoint.capture.flow.left_alone import leave_alone
from pinchpoint.capture.flow.operations import (
    COMPOSED_COPIES,
    Kind,
    Operation,
    Shapes,
    Tensor,
    changed,
    escape,
    is_random,
    kind_of,
    laid_flat,
    lies,
    read_by_optimizer,
    shapes_of,
)
from pinchpoint.capture.flow.same_rows import SameRows
from pinchpoint.capture.flow.sent_again import SENDS, SentAgain
from pinchpoint.capture.flow.stacks import Stack, Stacks
from pinchpoint.capture.flow.storages import Storages, content
from pinchpoint.capture.flow.stored import before_optimizers, parameter_of
from pinchpoint.capture.flow.surroundings import LEAST_FREE_BYTES, free_bytes
from pinchpoint.capture.flow.tiny_values import TinyValues
from pinchpoint.capture.flow.zero_payloads import ZeroPayloads
from pinchpoint.capture.ways.trials import WAYS, Trials
from pinchpoint.capture.windows.threads import graph_is_captured
from pinchpoint.frozen import dataclass

MOST_OPERATIONS = 10_000  # in a step; half a second of bookkeeping, and 15 MB until the last one
MOST_NS = 1_500_000_000  # of bookkeeping in a step
# Of all steps, by the clock: another thread may hold the interpreter, and never give it up itself.
MOST_IN_ALL_NS = 5_000_000_000
LONGEST_NS = 5_000_000  # of one operation: beyond that, another thread had the core
MOST_SUMS = 512  # in a step, of answers that are compared
# Methods of tensors that hand their memory to something which is not seen; others call these.
_READS = ("numpy", "tolist")
_HANDS_OUT = ("data_ptr", "untyped_storage", "__dlpack__")
_NEEDED = (
    "_len_torch_dispatch_stack",
    "_get_dispatch_stack_at",
    "_pop_torch_dispatch_stack",
    "_push_on_torch_dispatch_stack",
    "_current_graph_task_id",
)


@dataclass(frozen=True)
class _Begun:
    """An operation that is about to run; fields as in ``Operation``."""

    kind: Kind
    plain: Any
    reads: tuple[Tensor, ...]
    writes: tuple[tuple[int, bool], ...]
    random: bool
    opaque: bool
    shapes: Shapes
    backward: bool
    parameter: int | None  # whose gradient it stores


class Watch:
    """One watch over some steps."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.storages = Storages(torch)
        self.tiny, self.zeros, self.ids = TinyValues(torch), ZeroPayloads(torch), SameIds(torch)
        self.trials, self.same_rows = Trials(torch, free_bytes), SameRows(torch)
        self.sent = SentAgain(torch)
        self.steps: list[list[Operation]] = [[]]
        self._stacks = Stacks(torch)
        self._kinds: dict[Any, Kind] = {}
        self._mode: Any = None
        self._inference: InferenceModes | None = None
        self._undo: list[Callable[[], None]] = []
        self._paused = False
        self._in_backward = False
        self._handed_out = False  # what runs meanwhile, such as a copy to the host, the host reads
        self.compared: dict[tuple[Any, int], int] = {}  # of answers that sums are taken of
        self.sums: list[dict[tuple[Any, int], Any]] = [{}]
        self.handed_on: Container[tuple[Any, int]] = ()  # operations that make it for the next step
        self._counts: dict[Any, int] = {}
        self.why_not = ""  # what could not be seen: nothing may be said then
        self.cost_ns = self._step_ns = 0

    @property
    def stacks(self) -> Sequence[Stack]:
        """Frames around operations, by their number."""
        return self._stacks.all

    # Begin and end

    def begin(self) -> bool:
        """Hear of operations from now on; False where that is not possible, for ``why_not``."""
        c = self.torch._C
        if [name for name in _NEEDED if not hasattr(c, name)]:
            self.why_not = "torch before 2.1"
        elif c._len_torch_dispatch_stack():
            self.why_not = "a mode of the dispatcher is there already"
        elif free_bytes(self.torch) < LEAST_FREE_BYTES:
            self.why_not = f"less than {LEAST_FREE_BYTES >> 20} MiB of the device are free"
        if self.why_not:
            return False
        dispatch = sys.modules["torch.utils._python_dispatch"].TorchDispatchMode
        heard = self._heard

        class Flow(dispatch):  # type: ignore[misc, valid-type]
            supports_higher_order_operators = True

            @classmethod
            def _should_skip_dynamo(cls) -> bool:
                """Else torch imports its compiler for the first operation: seconds of the step."""
                return "torch._dynamo" in sys.modules

            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                return heard(func, types, args, kwargs or {})

        self._mode = Flow()
        self._inference = InferenceModes(self.torch, self._was_deaf)
        UNDER_WAY.add(self)
        self._mode.__enter__()
        for name in (*_READS, *_HANDS_OUT):
            self._replace(name, hands_out=name in _HANDS_OUT)
        reads = partial(self._escapes, written=False)
        self._undo += leave_alone(self.torch, self._mode, reads)
        self._undo += before_optimizers(self._taken)
        return True

    def end(self) -> None:
        """Hear no more: only this mode is left, wherever it stands among others."""
        self._paused = True  # in a thread that is not this one, the mode stays and does nothing
        UNDER_WAY.discard(self)
        while self._undo:
            self._undo.pop()()
        mode, self._mode = self._mode, None
        if mode is not None and self._inference is not None:
            self._inference.then(partial(take_away, self.torch, mode))

    def close(self) -> None:
        """Hear no more, and hold nothing."""
        self.end()
        self.storages.close()
        self.sums = []

    def step_ends(self) -> None:
        """The next operations belong to another step."""
        if self._inference is not None and self._inference.was_left():
            self._was_deaf()
        with self.unseen():
            self.storages.step_ends()
        self.steps.append([])
        self.sums.append({})
        self._counts = {}
        self._step_ns = 0

    def _was_deaf(self) -> None:
        """Something may have run unheard, and have read all that is there."""
        put_keys_back(self.torch)
        for storage in self.storages.all:
            storage.escaped = True

    @contextlib.contextmanager
    def unseen(self) -> Iterator[None]:
        """What is done meanwhile belongs not to the program."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    # What is heard

    def _heard(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if self._paused or self.why_not:
            return func(*args, **kwargs)
        began = time.perf_counter_ns()
        before: _Begun | None = None
        try:
            before = self._before(func, types, args, kwargs)
            if before is not None:
                self._look_at_values(before, (func, args, kwargs))
        except Exception as error:  # tensors without storage, of other devices
            self.why_not = f"{type(error).__name__}: {error}"
        between = time.perf_counter_ns()
        try:
            answer = func(*args, **kwargs)
        except Exception:  # the program may go on: a factorisation that fails is tried again
            if before is not None:
                with contextlib.suppress(Exception):
                    self._after(before, ())
            raise
        again = time.perf_counter_ns()
        if before is not None:
            try:
                self._after(before, answer)
            except Exception as error:
                self.why_not = f"{type(error).__name__}: {error}"
        took = between - began + time.perf_counter_ns() - again
        self._step_ns += min(took, LONGEST_NS)
        self.cost_ns += took
        if self._step_ns > MOST_NS or len(self.steps[-1]) > MOST_OPERATIONS:
            self.why_not = "too many operations in a step"
        if self.cost_ns > MOST_IN_ALL_NS:
            self.why_not = "looking at operations took too long"
        return answer

    def _look_at_values(self, begun: _Begun, call: tuple[Any, Any, Any]) -> None:
        step, at = len(self.steps) - 1, len(self.steps[-1])
        if begun.kind.name == LOOKS_UP:
            with self.unseen(), contextlib.suppress(Exception):
                self.ids.look(step, at, call[1])
        if self.sent.looks and begun.kind.name in SENDS:
            with self.unseen(), contextlib.suppress(Exception):
                self.sent.look(step, begun.kind, call[1], begun.shapes)
        if not self.tiny.looks and begun.kind.name not in WAYS:
            return
        stack, _ = self._stacks.number(sys._getframe(3))
        with self.unseen(), contextlib.suppress(Exception):
            if self.tiny.looks:
                self.zeros.look(at, begun.kind, call[1], call[2])
                self.tiny.look(at, begun.kind, begun.shapes, stack, call)
        with self.unseen(), contextlib.suppress(Exception):
            self.trials.look((step, at), begun.kind, begun.shapes, stack, call)

    def _before(self, func: Any, types: Any, args: Any, kwargs: Any) -> _Begun | None:
        torch = self.torch
        if any(kind not in (torch.Tensor, torch.nn.Parameter) for kind in types):
            self.why_not = "subclasses of tensors"
        elif graph_is_captured():
            self.why_not = "a CUDA graph is captured"
        if self.why_not:
            return None
        kind = self._kinds.get(func)
        if kind is None:
            kind = self._kinds[func] = kind_of(func)
        backward = torch._C._current_graph_task_id() >= 0
        if self._in_backward and not backward:
            self.storages.backward_ended()
        self._in_backward = backward
        tensors: list[Any] = []
        opaque = kind.opaque
        try:
            plain: Any = laid_flat((args, tuple(sorted(kwargs.items()))), torch.Tensor, tensors)
        except LookupError:
            plain, opaque = (), True
        there = [t for t in tensors if t.layout is torch.strided]
        opaque = opaque or len(there) < len(tensors)
        written = changed(torch, kind, args, kwargs)
        reads = self._reads(there, () if kind.sizes_only else {id(t) for t in written})
        if opaque:
            writes = [(number, False) for number, _ in reads]
        else:
            writes = [self._written(t) for t in written]
        random = opaque or is_random(kind, args, kwargs)
        shapes = shapes_of(tensors)
        of = parameter_of(torch, kind.name) if backward else None
        parameter = None if of is None else self.storages.number(of)
        return _Begun(
            kind, plain, reads, tuple(writes), random, opaque, shapes, backward, parameter
        )

    def _reads(self, tensors: list[Any], unread: Any) -> tuple[Tensor, ...]:
        """What is read, looked at before it may be changed; nothing of it if all is ``unread``."""
        found = []
        for tensor in tensors:
            number = self.storages.number(tensor)
            if unread != () and id(tensor) not in unread:
                self.storages.look_at(tensor, number)
            found.append((number, lies(tensor)))
        return tuple(found)

    def _written(self, tensor: Any) -> tuple[int, bool]:
        number = self.storages.number(tensor)
        self.storages.all[number].written = True
        whole = tensor.numel() * tensor.element_size() >= self.storages.all[number].bytes
        return number, whole

    def _after(self, begun: _Begun, answer: Any) -> None:
        torch, storages, kind = self.torch, self.storages, begun.kind
        given: list[Any] = []
        root = begun.opaque or kind.read_by_host or self._handed_out
        try:
            laid_flat(answer, torch.Tensor, given)
        except LookupError:
            root = True
        made, size = [], 0
        there = [t for t in given if t.layout is torch.strided]
        for tensor in there:
            if not storages.known(tensor):
                made.append(storages.number(tensor, made=True, backward=begun.backward))
                size += storages.all[made[-1]].bytes
        if not made and kind.name in COMPOSED_COPIES:  # it gives what it was given
            return
        kind = COMPOSED_COPIES.get(kind.name, kind)
        self.steps[-1].append(
            Operation(
                kind,
                begun.plain,
                begun.reads,
                begun.writes,
                tuple(made),
                not made and not begun.writes and bool(given),
                begun.random,
                root or len(there) < len(given) or not given,
                begun.backward,
                begun.shapes,
                *self._stacks.number(sys._getframe(3)),
                size,
                tuple(there[0].shape) if there else (),
                storages.stored(begun.parameter, writes=begun.writes, made=made, reads=begun.reads),
            )
        )
        if self.tiny.looks and there and (made or begun.writes) and not begun.backward:
            with self.unseen(), contextlib.suppress(Exception):
                self.same_rows.look(len(self.steps[-1]) - 1, kind.name, there[0])
        key = (kind.name, begun.shapes)
        at = self._counts.get(key, 0)
        self._counts[key] = at + 1
        for tensor in there if (key, at) in self.handed_on else ():
            storages.look_at_made(tensor)
        which = self.compared.get((key, at))
        if which is not None and which < len(there) and len(self.sums[-1]) < MOST_SUMS:
            storage = storages.of(there[which])
            if storages.affords(storage.nbytes()):
                self.sums[-1][key, at] = content(torch, storage)

    def _taken(self, gradients: list[Any]) -> None:
        if not (self._paused or self.why_not):
            known = [one for one in gradients if self.storages.known(one)]
            taken = ((self.storages.number(one), lies(one)) for one in known)
            self.steps[-1].append(read_by_optimizer(taken))

    def _escapes(self, tensor: Any, *, written: bool) -> None:
        if self._paused or self.why_not:
            return
        try:
            if not self.storages.known(tensor):
                return
            number = self.storages.number(tensor)
            self.storages.all[number].escaped = True
            if written:
                self.steps[-1].append(escape(number))
        except Exception as error:
            self.why_not = f"{type(error).__name__}: {error}"

    def _replace(self, name: str, *, hands_out: bool) -> None:
        """A method of tensors, until the watch ends."""
        kind = self.torch.Tensor
        original = getattr(kind, name, None)
        if original is None:
            return
        own, escapes = kind.__dict__.get(name), self._escapes

        def replaced(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            escapes(tensor, written=hands_out)
            before, self._handed_out = self._handed_out, True
            try:
                return original(tensor, *args, **kwargs)
            finally:
                self._handed_out = before

        setattr(kind, name, replaced)

        def undo() -> None:
            if kind.__dict__.get(name) is replaced:
                if own is None:
                    delattr(kind, name)
                else:
                    setattr(kind, name, own)

        self._undo.append(undo)
