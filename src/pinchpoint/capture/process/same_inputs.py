"""Modules that are called with the same values again, and can only give the same answer again.

Some steps in turn are watched, after the recording. A call is told from others by its module, by
sums over all bits of its tensors and samples of its weights, and by how often tensors were written
to. What may answer otherwise is left alone: modules that train, drop at random, or are given
objects whose content cannot be seen.
"""

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from pinchpoint.capture.process.value_facts import Leaves
from pinchpoint.capture.windows.threads import graph_is_captured
from pinchpoint.frozen import dataclass

STEPS = 3  # in turn: two might be alike by chance, as two tokens are
MOST_CALLS = 32  # in a step, for each depth
MOST_DEPTH = 3  # a pipeline, its model, the encoder in it
MOST_ELEMENTS = 1 << 22  # of one tensor: its sums need memory of 96 MiB for a moment
SAMPLED = 1 << 12  # weights of one parameter, of the last ones: what trains changes them all
PARAMETERS = 8
_PLAIN = (int, float, str, bytes, bool, type(None))
_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


@dataclass(frozen=True)
class _Call:
    """One call; ``sums``: none if it may answer otherwise each time."""

    model: str
    place: tuple[str, int, str] | None
    told_by: tuple[Any, ...]
    sums: tuple[Any, ...]


class SameInputs:
    """Hears of calls for some steps, and says which were made again."""

    def __init__(self, place: Callable[[], tuple[str, int, str] | None]) -> None:
        self._place = place
        self._steps: list[list[_Call]] = []
        self._inside: list[bool] = []  # modules that are running; whether each is looked at
        self._entered: dict[int, int] = {}  # of this step, by depth
        self._thread = 0
        self._handles: list[Any] = []

    @property
    def watches(self) -> bool:
        """Whether steps are watched now."""
        return bool(self._handles)

    def begin(self) -> None:
        """Hear of all modules from now on."""
        hooks: Any = sys.modules["torch.nn.modules.module"]
        self._steps, self._inside, self._entered = [[]], [], {}
        self._thread = threading.get_ident()
        self._handles = [
            hooks.register_module_forward_pre_hook(self._enters),
            hooks.register_module_forward_hook(self._leaves, with_kwargs=True, always_call=True),
        ]

    def step_ends(self) -> list[dict[str, Any]] | None:
        """None while more steps are to be watched; at the end what was called again."""
        if len(self._steps) < STEPS:
            self._steps.append([])
            self._entered = {}
            return None
        self.end()
        return list(_again(self._steps))

    def end(self) -> None:
        """Hear no more."""
        while self._handles:
            self._handles.pop().remove()

    def _enters(self, module: Any, args: Any) -> None:
        if threading.get_ident() == self._thread:
            depth = len(self._inside)
            self._entered[depth] = self._entered.get(depth, 0) + 1
            self._inside.append(depth < MOST_DEPTH and self._entered[depth] <= MOST_CALLS)

    def _leaves(self, module: Any, args: Any, kwargs: Any, answer: Any) -> None:
        mine = threading.get_ident() == self._thread and self._inside
        if not (mine and self._inside.pop()):
            return
        try:
            call = self._call(sys.modules["torch"], module, args, kwargs)
        except Exception:  # subclasses, devices without an operator: the program comes first
            call = _Call(type(module).__name__, None, (), ())
        self._steps[-1].append(call)

    def _call(self, torch: Any, module: Any, args: Any, kwargs: Any) -> _Call:
        name, place = type(module).__name__, self._place()
        seen = _is_settled(torch, module) and _all_seen(torch, (args, kwargs))
        if not seen or graph_is_captured():
            return _Call(name, place, (), ())
        given = Leaves(torch)
        given.add((args, kwargs))
        own = [*module.parameters(), *module.buffers()]
        tensors = [leaf.tensor for leaf in given.found]
        if not tensors or any(t.numel() > MOST_ELEMENTS for t in tensors):
            return _Call(name, place, (), ())
        versions = tuple(t._version for t in own if not t.is_inference())
        shapes = tuple((tuple(t.shape), t.dtype) for t in tensors)
        parts = [*tensors, *(p.detach().reshape(-1)[:SAMPLED] for p in own[-PARAMETERS:])]
        with torch.no_grad():
            sums = tuple(_sum_of_bits(torch, t) for t in parts if t.numel())
        return _Call(name, place, (id(module), versions, shapes, _words(args, kwargs)), sums)


def _is_settled(torch: Any, module: Any) -> bool:
    """Nothing in it trains, and nothing is dropped at random."""
    if torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters()):
        return False
    return not any(m.training and "Drop" in type(m).__name__ for m in module.modules())


def _all_seen(torch: Any, value: Any, depth: int = 0) -> bool:
    """Whether there is nothing but tensors, plain values and containers of these."""
    if isinstance(value, torch.Tensor):
        return type(value) in (torch.Tensor, torch.nn.Parameter)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return depth < 4 and all(_all_seen(torch, one, depth + 1) for one in value)
    return isinstance(value, _PLAIN)


def _words(args: Any, kwargs: Any) -> str:
    """The plain values among arguments."""
    return repr([v for v in (*args, *kwargs.values()) if isinstance(v, _PLAIN)])


def _sum_of_bits(torch: Any, tensor: Any) -> Any:
    """A whole number that two tensors of other values hardly share; it wraps around."""
    x = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if x.dtype is torch.bool or x.is_complex():
        x = x.to(torch.uint8) if x.dtype is torch.bool else torch.view_as_real(x).reshape(-1)
    bits = x.view(getattr(torch, _BITS[x.element_size()])).to(torch.int64)
    weights = torch.arange(1, len(bits) + 1, device=x.device) * 0x9E3779B1 | 1
    return (bits * weights).sum()


def _again(steps: list[list[_Call]]) -> Iterator[dict[str, Any]]:
    """Kinds of modules all of whose calls came again, if other calls did not."""
    torch = sys.modules["torch"]
    calls = [call for step in steps for call in step]
    known = [call for call in calls if call.sums]
    summed = [s.reshape(1).cpu() for call in known for s in call.sums]
    read = iter(torch.cat(summed).tolist() if summed else [])
    by_kind: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for call in known:
        by_kind[call.model].append((*call.told_by, *islice(read, len(call.sums))))
    open_kinds = {call.model for call in calls if not call.sums}
    new = {kind for kind, told in by_kind.items() if 2 * len(set(told)) > len(told)}
    if not open_kinds and not new:
        return  # a measurement, which computes the same thing by intent
    for kind, told in by_kind.items():
        if kind not in open_kinds | new:
            place = next(call.place for call in known if call.model == kind)
            yield {"model": kind, "place": place, "calls": len(told), "distinct": len(set(told))}
