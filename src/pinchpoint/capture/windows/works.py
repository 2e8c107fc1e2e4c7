"""Collectives and messages that began in a recording, and are under way at its end.

A process group of the CPU (gloo) keeps for each of them the address of an event of the recording,
and writes the time to it when the work is over: for a message that is when the program waits for
it, which may be in the next step. A recording that has ended has freed its events by then, and the
write lands in whatever the program has there now: with torch 2.13 programs die of it some
steps later, anywhere, or while Python ends. So a recording ends when all of them are over.
"""

import ctypes
import sys
import weakref
from collections.abc import Callable
from typing import Any

_BEGIN = (  # methods of torch's process groups that give a work back
    "send",
    "recv",
    "recv_anysource",
    "allreduce",
    "allreduce_coalesced",
    "broadcast",
    "reduce",
    "allgather",
    "_allgather_base",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "all_gather_single",
    "all_gather_single_coalesced",
    "gather",
    "scatter",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
    "barrier",
)
_MANY = 256  # works after which those that are over are let go, and so on at twice what is left


class Works:
    """Those of the process that were begun between ``watch`` and ``leave``."""

    def __init__(self) -> None:
        self._begun: list[weakref.ref[Any]] = []
        self._look_at = _MANY
        self._ours: dict[str, Callable[..., Any]] = {}
        self._theirs: dict[str, Any] = {}

    def watch(self) -> None:
        """Take note of what is begun from now on."""
        group = _process_group()
        for name in _BEGIN if group is not None else ():
            theirs = vars(group).get(name)
            if theirs is not None:
                self._theirs[name], self._ours[name] = theirs, self._noting(theirs)
                setattr(group, name, self._ours[name])

    def leave(self) -> None:
        """No longer; what was noted stays."""
        group = _process_group()
        for name, theirs in self._theirs.items():
            if vars(group).get(name) is self._ours[name]:  # else somebody has put theirs around it
                setattr(group, name, theirs)
        self._theirs = {}

    def under_way(self) -> bool:
        """Whether one of them is neither over nor gone."""
        self._begun = [one for one in self._begun if _is_under_way(one())]
        return bool(self._begun)

    def keep(self) -> None:
        """Where the recording has to end all the same: to free one of them would end it, so none
        ever is."""
        for one in self._begun:
            work = one()
            if _is_under_way(work):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(work))
        self._begun = []

    def _noting(self, theirs: Any) -> Callable[..., Any]:
        def begin(group: Any, *given: Any, **named: Any) -> Any:
            work = theirs(group, *given, **named)
            if work is not None and _is_of_the_cpu(group, given, named):
                self._note(work)
            return work

        begin.__name__ = begin.__qualname__ = getattr(theirs, "__name__", "begin")
        begin.__doc__ = getattr(theirs, "__doc__", None)
        return begin

    def _note(self, work: Any) -> None:
        self._begun.append(weakref.ref(work))
        if len(self._begun) >= self._look_at:
            self.under_way()
            self._look_at = max(_MANY, 2 * len(self._begun))


def _process_group() -> Any:
    return getattr(sys.modules.get("torch._C._distributed_c10d"), "ProcessGroup", None)


def _is_of_the_cpu(group: Any, given: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Whether such a group keeps an event: those of devices are done with theirs once launched."""
    first: Any = [*given, *named.values()]
    while isinstance(first, list | tuple):
        if not first:
            return False
        first = first[0]
    device = getattr(first, "device", None)
    return bool(group.name() == "gloo" if device is None else device.type == "cpu")


def _is_under_way(work: Any) -> bool:
    """A work says that it is over once its event has been written to."""
    try:
        return work is not None and not work.is_completed()
    except RuntimeError:  # it failed, and is over with that
        return False
