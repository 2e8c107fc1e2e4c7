"""The raw memory timeline of PyTorch's profiler: what was made, changed and freed, by category.

``export_memory_timeline("memory.raw.json.gz")`` writes a list of ``[time_ns, action, ±bytes,
category]``. It names no blocks: what is freed is taken to be the oldest block of that size and
category, which leaves every curve as it was. A new version of a tensor moves its block to another
category. What was there before the recording comes first, at its begin.
"""

from array import array
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from pinchpoint.errors import HostileFile, UnreadableFile
from pinchpoint.importers.files.memory import MEMORY_TIMELINE_TIMES, must_fit
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.health import Fact, health_table
from pinchpoint.trace import (
    AllocatorAction,
    BlockState,
    Frame,
    MemorySnapshot,
    Names,
    Source,
    Stacks,
    Table,
    Trace,
    empty_table,
    table,
)
from pinchpoint.trace.snapshot import CATEGORY_FILE

FORMAT = "memory timeline"
FILES = (".raw.json.gz", "torch.profiler export_memory_timeline")
READS: tuple[str, ...] = ("memory",)
NOT_READ = "the picture (.html), the sums (.json)"

# torch/profiler/_memory_profiler.py: Category.
CATEGORIES = (
    *("parameter", "optimizer state", "input", "temporary"),
    *("activation", "gradient", "autograd detail", "unknown"),
)
_MOST_BYTES = 2 << 30  # read at once; thirty million rows
_ALIGNED = 512  # bytes, as the allocator rounds; addresses are made up, and never used twice
_PIECE_BYTES = 1 << 18  # some thousand rows: larger pieces are no faster
_LONGEST_ROW = 200  # bytes of four numbers, in any layout
_COLUMNS = ("action", "address", "bytes", "time_us", "stack")
Row = tuple[int, int, int, int]


class _Block(NamedTuple):
    address: int
    size: int
    category: int


def claims(path: Path, head: bytes) -> bool:
    """A list of lists of four whole numbers, or of times and sums beside each other."""
    outer, inner, text = head.partition(b"]")[0].rpartition(b"[")
    if b"".join(outer.split()) != b"[" or not inner:
        return False
    first = text.split(b",")
    return len(first) == 4 and all(part.strip().lstrip(b"-").isdigit() for part in first)


def read(path: Path) -> Trace:
    """The timeline as an allocator's history, each block with its category as its stack."""
    with unpacked(path) as plain:
        if plain.stat().st_size > _MOST_BYTES:
            raise HostileFile(f"{path}: larger than {_MOST_BYTES >> 30} GB", hint="record less")
        must_fit(path, plain.stat().st_size, MEMORY_TIMELINE_TIMES)
        begin = min((time for time, *_ in _rows(path, plain) if time >= 0), default=0)
        history = _History(begin)
        for row in _rows(path, plain):
            history.add(row)
    if not history.columns["action"]:
        raise UnreadableFile(
            f"{path}: a memory timeline without a single event",
            hint="record with profile_memory=True, record_shapes=True, with_stack=True",
        )
    frames = tuple(Frame(CATEGORY_FILE, 0, name) for name in CATEGORIES)
    places = np.arange(len(CATEGORIES) + 1, dtype=np.int64)
    names = Names()
    facts = [Fact("pairs-unmatched", history.lost)] if history.lost else []
    alive = sorted(
        _Block(address, size, kind)
        for (size, kind), addresses in history.live.items()
        for address in addresses
    )
    return Trace(
        source=Source(str(path), FORMAT, path.stat().st_size, recorder="torch.profiler"),
        snapshot=MemorySnapshot(
            events=history.table(),
            segments=_segments(alive),
            blocks=_blocks(alive),
            stacks=Stacks(frames, places, places[:-1].astype(np.int32)),
            layout=False,
        ),
        health=health_table(facts, names),
        names=names.freeze(),
    )


def _rows(path: Path, plain: Path) -> Iterator[Row]:
    """Row by row, a piece of the text at a time: its numbers are some ten times as large."""
    decoder = msgspec.json.Decoder(list[Row])
    end = _outer_end(path, plain)
    with plain.open("rb") as file:
        left = file.read(min(_PIECE_BYTES, end)).lstrip()[1:]
        while True:
            whole, bracket, left = left.rpartition(b"]")
            yield from _decoded(path, decoder, whole.strip().lstrip(b",") + bracket)
            if len(left) > _LONGEST_ROW:
                raise _damaged(path, "a row without end")
            piece = file.read(min(_PIECE_BYTES, end - file.tell()))
            if not piece:
                break
            left += piece
    if left.strip():
        raise _damaged(path, "a row without end")


def _outer_end(path: Path, plain: Path) -> int:
    """Where the bracket is that closes the list."""
    size = plain.stat().st_size
    with plain.open("rb") as file:
        file.seek(max(0, size - _PIECE_BYTES))
        tail = file.read()
    if tail.rstrip()[-1:] != b"]":
        raise _damaged(path, "its end is missing")
    return size - len(tail) + tail.rindex(b"]")


def _decoded(path: Path, decoder: "msgspec.json.Decoder[list[Row]]", text: bytes) -> list[Row]:
    try:
        return decoder.decode(b"[" + text + b"]")
    except msgspec.DecodeError as error:
        raise _damaged(path, str(error)) from None


def _damaged(path: Path, what: str) -> UnreadableFile:
    return UnreadableFile(f"{path}: cut off, or no memory timeline ({what})", hint="copy it again")


class _History:
    """Allocations and frees in columns, the blocks that are left, and frees that found none."""

    def __init__(self, begin: int) -> None:
        self.columns = {name: array("q") for name in _COLUMNS}
        self.live: dict[tuple[int, int], deque[int]] = {}  # addresses by size and category
        self.lost = 0
        self._begin, self._following = begin, _ALIGNED

    def add(self, row: Row) -> None:
        """One row of the file, as the one or two events that it stands for."""
        time, _, size, category = row
        kind = category if 0 <= category < len(CATEGORIES) else len(CATEGORIES) - 1
        at_us = max(time, self._begin) // 1000
        if size > 0:
            self.live.setdefault((size, kind), deque()).append(self._following)
            self._event(AllocatorAction.ALLOC, self._following, size, at_us, kind)
            self._following += -(-size // _ALIGNED) * _ALIGNED
        elif size < 0 and (addresses := self.live.get((-size, kind))):
            address = addresses.popleft()
            if not addresses:
                del self.live[-size, kind]
            for step in (AllocatorAction.FREE_REQUESTED, AllocatorAction.FREE_COMPLETED):
                self._event(step, address, -size, at_us, kind)
        else:
            self.lost += size != 0

    def _event(self, *values: int) -> None:
        for held, value in zip(self.columns.values(), values, strict=True):
            held.append(value)

    def table(self) -> Table:
        """The events."""
        columns = {name: np.frombuffer(held, np.int64) for name, held in self.columns.items()}
        zeros = np.broadcast_to(np.int64(0), len(columns["action"]))
        return table("allocator_events", {"device": zeros, "stream": zeros, **columns})


def _segments(alive: list[_Block]) -> Table:
    """Each block that is left, as a segment of its own."""
    if not alive:
        return empty_table("allocator_segments")
    count = len(alive)
    zeros = np.zeros(count, np.int64)
    return table(
        "allocator_segments",
        {
            "device": zeros,
            "address": np.array([b.address for b in alive]),
            "bytes": np.array([-(-b.size // _ALIGNED) * _ALIGNED for b in alive]),
            "stream": zeros,
            "small": np.zeros(count, np.bool_),
            "expandable": np.zeros(count, np.bool_),
            "first_block": np.arange(count),
            "blocks": np.ones(count, np.int32),
        },
    )


def _blocks(alive: list[_Block]) -> Table:
    if not alive:
        return empty_table("allocator_blocks")
    sizes = np.array([b.size for b in alive])
    return table(
        "allocator_blocks",
        {
            "segment": np.arange(len(alive)),
            "address": np.array([b.address for b in alive]),
            "bytes": -(-sizes // _ALIGNED) * _ALIGNED,
            "requested_bytes": sizes,
            "state": np.full(len(alive), int(BlockState.ALLOCATED)),
            "stack": np.array([b.category for b in alive]),
        },
    )
