"""Modules that are called with the same values again, and can only give the same answer again.

Some steps in turn are watched, after the recording. A call is told from others by its module, by
sums over all bits of its tensors and samples of its weights, and by how often tensors were written
to: what trains has other weights in each step, and is the same within one. A module that is given
nothing is told by what it answers. What may answer otherwise is left alone: modules that drop at
random, or are given objects whose content cannot be seen, and what a backward pass computes again.
"""

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

from pinchpoint.capture.flow.content import sum_of_bits
from pinchpoint.capture.process.value_facts import Leaves
from pinchpoint.capture.windows.threads import graph_is_captured
from pinchpoint.frozen import dataclass

# In turn: two might be alike by chance, as two tokens are, and where a round of several steps has
# its own input (a picture's), half of them may belong to the next one.
STEPS = 6
MOST_CALLS = 32  # in a step, for each depth
MOST_DEPTH = 3  # a pipeline, its model, the encoder in it
MOST_ELEMENTS = 1 << 22  # of one call; larger ones are left alone
# Elements of all tensors of the outermost calls: 0.1 s of a CPU; half as many at each depth below,
# so that what is inside, which ends first, does not use up what the call around it needs.
IN_A_STEP = 1 << 24
# Times as many on another device, whose memory moves a hundred times as many a second; pictures of
# a thousand by a thousand are among them. Its launches are a few milliseconds of the host then.
ON_DEVICE = 16
# Of all steps, by the clock: where another thread never gives the interpreter up, each of our
# operations waits five milliseconds for it, and an ordinary look is a fiftieth of that.
MOST_NS = 2_000_000_000
SAMPLED = 1 << 12  # weights of one parameter, of the last ones: what trains changes them all
PARAMETERS = 8
_PLAIN = (int, float, str, bytes, bool, type(None))


@dataclass(frozen=True)
class _Call:
    """One call. Without ``given``: what it was given could not be looked into."""

    model: str
    place: tuple[str, int, str] | None
    module: int = 0
    told_by: tuple[Any, ...] = ()  # shapes and plain values; how often weights were written to
    given: tuple[Any, ...] = ()  # sums over the bits of its tensors
    weights: tuple[Any, ...] = ()  # and of samples of its weights
    settled: bool = False  # with the same values it gives the same answer


class SameInputs:
    """Hears of calls for some steps, and says which were made again."""

    def __init__(
        self,
        place: Callable[[], tuple[str, int, str] | None],
        unseen: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._place, self._unseen = place, unseen  # nobody else hears of what is done to compare
        self._steps: list[list[_Call]] = []
        self._inside: list[bool] = []  # modules that are running; whether each is looked at
        self._entered: dict[int, int] = {}  # of this step, by depth
        self._elements: dict[int, int] = {}  # of this step, by depth
        self._thread = 0
        self.cost_ns = 0
        self._handles: list[Any] = []

    @property
    def watches(self) -> bool:
        """Whether steps are watched now."""
        return bool(self._handles)

    def begin(self) -> None:
        """Hear of all modules from now on."""
        hooks: Any = sys.modules["torch.nn.modules.module"]
        self._steps, self._inside, self._entered, self._elements = [[]], [], {}, {}
        self._thread = threading.get_ident()
        self._handles = [
            hooks.register_module_forward_pre_hook(self._enters),
            hooks.register_module_forward_hook(self._leaves, with_kwargs=True, always_call=True),
        ]

    def step_ends(self) -> list[dict[str, Any]] | None:
        """None while more steps are to be watched; at the end what was called again; nothing where
        looking took too long."""
        if not self.watches:
            return []
        if len(self._steps) < STEPS:
            self._steps.append([])
            self._entered, self._elements = {}, {}
            return None
        self.end()
        with self._unseen():
            return list(_again(self._steps))

    def end(self) -> None:
        """Hear no more."""
        while self._handles:
            self._handles.pop().remove()

    def _enters(self, module: Any, args: Any) -> None:
        if threading.get_ident() == self._thread:
            depth = len(self._inside)
            self._entered[depth] = self._entered.get(depth, 0) + 1
            near = depth < MOST_DEPTH or not args  # nothing but weights: they may lie deeper
            self._inside.append(near and self._entered[depth] <= MOST_CALLS)

    def _leaves(self, module: Any, args: Any, kwargs: Any, *answer: Any) -> None:
        mine = threading.get_ident() == self._thread and self._inside
        if not (mine and self._inside.pop() and answer):  # torch gives none after an exception
            return
        began_ns = time.perf_counter_ns()
        try:
            with self._unseen():
                call = self._call(sys.modules["torch"], module, (args, kwargs), answer[0])
        except Exception:  # subclasses, devices without an operator: the program comes first
            call = _Call(type(module).__name__, None)
        self._steps[-1].append(call)
        self.cost_ns += time.perf_counter_ns() - began_ns
        if self.cost_ns > MOST_NS:
            self.end()

    def _call(self, torch: Any, module: Any, said: tuple[Any, Any], answer: Any) -> _Call:
        name, place = type(module).__name__, self._place()
        leaves = Leaves(torch)
        leaves.add(said)
        if not leaves.found:
            leaves.add(answer)
        given = [leaf.tensor for leaf in leaves.found]
        elements = sum(tensor.numel() for tensor in given)
        seen = _all_seen(torch, (*said, answer)) and not graph_is_captured()
        counted = elements // (1 if any(t.device.type == "cpu" for t in given) else ON_DEVICE)
        depth = len(self._inside)
        used = self._elements.get(depth, 0) + counted
        fits = counted <= MOST_ELEMENTS and used <= IN_A_STEP >> depth
        if not (elements and seen and fits):
            return _Call(name, place)
        self._elements[depth] = used
        own = [*module.parameters(), *module.buffers()]
        versions = tuple(t._version for t in own if not t.is_inference())
        shapes = tuple((tuple(t.shape), t.dtype) for t in given)
        weights = [p.detach().reshape(-1)[:SAMPLED] for p in own[-PARAMETERS:] if p.numel()]
        settled = _is_settled(torch, module)
        with torch.no_grad():
            return _Call(
                name,
                place,
                id(module),
                (shapes, _words(*said), versions),
                tuple(sum_of_bits(torch, t) for t in given if t.numel()),
                tuple(sum_of_bits(torch, t) for t in weights),
                settled,
            )


def _is_settled(torch: Any, module: Any) -> bool:
    """Nothing is dropped at random, and no backward pass computes again what was not kept."""
    return torch._C._current_graph_task_id() < 0 and not any(
        m.training and "Drop" in type(m).__name__ for m in module.modules()
    )


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


def _again(steps: list[list[_Call]]) -> Iterator[dict[str, Any]]:
    """Kinds of modules all of whose calls came again, if others were given something new.

    Where nothing is seen to be new, the loop may be a measurement, which repeats by intent.
    """
    torch = sys.modules["torch"]
    calls = [call for step in steps for call in step]
    sums = [s.reshape(1).cpu() for call in calls for s in (*call.given, *call.weights)]
    read = iter(torch.cat(sums).tolist() if sums else [])
    inputs: dict[str, list[Any]] = defaultdict(list)
    all_of_it: dict[str, list[Any]] = defaultdict(list)
    for call in calls:
        given, weights = (tuple(islice(read, len(part))) for part in (call.given, call.weights))
        if given:
            inputs[call.model].append((call.module, call.told_by[:2], given))
            all_of_it[call.model].append((call.module, call.told_by, given, weights))
    if not any(_mostly_new(told) for told in inputs.values()):
        return
    unsure = {call.model for call in calls if not (call.given and call.settled)}
    for kind, told in all_of_it.items():
        if kind not in unsure and not _mostly_new(told):
            place = next(call.place for call in calls if call.model == kind)
            yield {"model": kind, "place": place, "calls": len(told), "distinct": len(set(told))}


def _mostly_new(told: list[Any]) -> bool:
    return 2 * len(set(told)) > len(told)
