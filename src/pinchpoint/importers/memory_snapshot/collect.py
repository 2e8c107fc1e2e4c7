"""Turns the dictionaries of a snapshot into rows as soon as they are read.

What is what is told by its keys, as they have been since torch 1.13: an event has ``action``, a
frame ``filename``, a block ``state``, a segment ``total_size``. Unknown keys are ignored.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pinchpoint.errors import HostileFile
from pinchpoint.importers.memory_snapshot.dict_pattern import Coded, Column
from pinchpoint.importers.memory_snapshot.pickle_state import Rows
from pinchpoint.trace import AllocatorAction, BlockState, Frame, Names

MAX_EVENTS = 40_000_000  # 4 to 16 GB by MAX_BYTES' measure
MAX_FRAMES = 2_000_000  # distinct lines; real files have tens to thousands
MAX_STACK_FRAMES = 40_000_000  # frames of distinct stacks
NONE = -1  # inside the columns only; the tables get masks

_ACTIONS = {action.name.lower(): int(action) for action in AllocatorAction}
_STATES = {
    "active_allocated": BlockState.ALLOCATED,
    "active_pending_free": BlockState.PENDING_FREE,  # the code's word
    "active_awaiting_free": BlockState.PENDING_FREE,  # the documentation's word
    "inactive": BlockState.INACTIVE,
}


class FrameRef(int):
    """Position of a frame."""


class StackRef(int):
    """Position of a stack."""


class EventColumns:
    """Columns of ``allocator_events`` as they grow."""

    def __init__(self) -> None:
        self.action = array("B")
        self.address = array("Q")
        self.bytes = array("q")
        self.stream = array("Q")
        self.time_us = array("q")
        self.stack = array("i")
        self.rare: dict[int, dict[str, Any]] = {}  # row -> pool, note, free_bytes, no_address


class BlockColumns:
    """Columns of ``allocator_blocks`` as they grow; ``address`` is 0 where it must be counted."""

    def __init__(self) -> None:
        self.address = array("Q")
        self.bytes = array("q")
        self.requested = array("q")
        self.state = array("B")
        self.stack = array("i")


class Collector:
    """The reducer of :class:`PlainPickle` for memory snapshots."""

    many = "event"

    def __init__(self, name: str) -> None:
        self.name = name
        self.events = EventColumns()
        self.blocks = BlockColumns()
        self.segments: list[dict[str, Any]] = []
        self.frames: list[Frame] = []
        self.stacks: list[tuple[int, ...]] = []
        self.names = Names()
        self._stack_frames = 0
        self._frame_of: dict[Frame, FrameRef] = {}
        self._stack_of: dict[tuple[int, ...], StackRef] = {}

    def finished_dict(self, content: dict[Any, Any]) -> Any:
        """A reference to the row that the dictionary has become, or the dictionary itself."""
        if "action" in content:
            return self._event(content)
        if "filename" in content:
            return self._frame(content)
        if "state" in content and "size" in content:
            return self._block(content)
        if "total_size" in content:
            self.segments.append(content)
            return Rows("segment", len(self.segments) - 1, len(self.segments))
        return content

    def finished_list(self, content: list[Any]) -> Any:
        """A reference to the stack, if it is a list of frames."""
        if content and type(content[0]) is not FrameRef:
            return content
        return self._stack(tuple(content))

    def finished_dicts(self, keys: tuple[str, ...], columns: Sequence[Column]) -> Rows:
        """Append many events at once; ``columns`` in the order of ``keys``."""
        given = dict(zip(keys, columns, strict=True))
        events, count = self.events, len(columns[0])
        start = len(events.action)
        if start + count > MAX_EVENTS:
            raise self._too_many("events")

        def column(key: str, default: Any) -> Column:
            values = given.get(key)
            return Coded([default], np.zeros(count, np.int64)) if values is None else values

        _extend(events.action, given["action"], lambda a: _ACTIONS.get(a, AllocatorAction.OTHER))
        _extend(events.address, column("addr", 0))
        _extend(events.bytes, column("size", 0))
        _extend(events.stream, column("stream", 0))
        _extend(events.time_us, column("time_us", NONE))
        stacks = column("frames", None)
        settled = isinstance(stacks, Coded) and set(map(type, stacks.values)) <= {StackRef}
        _extend(events.stack, stacks, None if settled else self._stack_in)
        self._note_rare(start, count, given)
        return Rows("event", start, start + count)

    def _note_rare(self, start: int, count: int, given: Mapping[str, Column]) -> None:
        notes = given.get("user_metadata", [])
        pools = given.get("pool_id", [])
        free = given.get("device_free")
        rows = _rows_where(notes, bool) | _rows_where(pools, _private)
        if "addr" not in given:
            rows |= set(range(count))
        for i in rows:
            self.events.rare[start + i] = {
                "note": str(notes[i]) if i < len(notes) and notes[i] else None,
                "pool": _pool_name(pools[i]) if i < len(pools) else None,
                "free_bytes": None if free is None else free[i],
                "no_address": "addr" not in given,
            }

    def _event(self, content: dict[Any, Any]) -> Rows:
        return self.finished_dicts(tuple(content), [[value] for value in content.values()])

    def _block(self, content: dict[Any, Any]) -> Rows:
        columns = self.blocks
        stack, requested = content.get("frames"), content.get("requested_size")
        history = content.get("history")  # before torch 2.1
        if history and isinstance(history[0], dict):
            stack = history[0].get("frames", stack)
            requested = history[0].get("real_size", requested)
        if len(columns.bytes) >= MAX_EVENTS:
            raise self._too_many("blocks")
        columns.address.append(content.get("address", 0))
        columns.bytes.append(content["size"])
        columns.requested.append(NONE if requested is None else requested)
        columns.state.append(_STATES[content["state"]])
        ref = self._stack_in(stack)
        # An empty stack says nothing here: the block may be older than the recording of stacks.
        columns.stack.append(NONE if ref == NONE or not self.stacks[ref] else ref)
        return Rows("block", len(columns.bytes) - 1, len(columns.bytes))

    def _frame(self, content: dict[Any, Any]) -> FrameRef:
        line = content.get("line")
        frame = Frame(str(content["filename"]), int(line or 0), str(content.get("name", "")))
        ref = self._frame_of.get(frame)
        if ref is None:
            if len(self.frames) >= MAX_FRAMES:
                raise self._too_many("distinct frames")
            ref = self._frame_of[frame] = FrameRef(len(self.frames))
            self.frames.append(frame)
        return ref

    def _stack(self, frames: tuple[int, ...]) -> StackRef:
        ref = self._stack_of.get(frames)
        if ref is None:
            self._stack_frames += len(frames)
            if self._stack_frames > MAX_STACK_FRAMES:
                raise self._too_many("distinct stacks")
            ref = self._stack_of[frames] = StackRef(len(self.stacks))
            # A damaged list holds other things, and a number would be taken for a frame's position.
            self.stacks.append(tuple(f for f in frames if type(f) is FrameRef))
        return ref

    def _too_many(self, what: str) -> HostileFile:
        return HostileFile(
            f"{self.name}: refused: more {what} than any recording has",
            hint="record with max_entries=1_000_000",
        )

    def _stack_in(self, frames: Any) -> int:
        if type(frames) is StackRef:
            return frames
        if frames is None:
            return NONE
        return self._stack(tuple(f for f in frames if type(f) is FrameRef))


def _extend(target: "array[int]", column: Column, of: Callable[[Any], int] | None = None) -> None:
    """Append ``of`` each value; OverflowError or TypeError for what does not fit."""
    if isinstance(column, Coded):
        known = array(target.typecode, map(of, column.values) if of else column.values)
        numbers = np.frombuffer(known, target.typecode)[column.index]
    elif isinstance(column, list) or of:
        values = column if isinstance(column, list) else column.tolist()
        target.extend(map(of, values) if of else values)
        return
    elif target.typecode.isupper() and column.min(initial=0) < 0:
        raise OverflowError
    else:
        numbers = column.astype(target.typecode)
    target.frombytes(numbers.tobytes())


def _rows_where(column: Column, test: Callable[[Any], bool]) -> set[int]:
    if not isinstance(column, Coded):
        return {row for row, value in enumerate(column) if test(value)}
    fits = np.array([test(value) for value in column.values])
    return set(np.flatnonzero(fits[column.index]).tolist()) if fits.any() else set()


def _private(pool: Any) -> bool:
    return pool is not None and tuple(pool) != (0, 0)


def _pool_name(pool: Any) -> str | None:
    return f"{pool[0]}, {pool[1]}" if _private(pool) else None
