"""The raw memory timeline of PyTorch's profiler: what was made, changed and freed, by category.

``export_memory_timeline("memory.raw.json.gz")`` writes a list of ``[time_ns, action, ±bytes,
category]``. It names no blocks: what is freed is taken to be the oldest block of that size and
category, which leaves every curve as it was. A new version of a tensor moves its block to another
category. What was there before the recording comes first, at its begin.
"""

from collections import defaultdict, deque
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from pinchpoint.errors import HostileFile, UnreadableFile
from pinchpoint.importers._memory import MEMORY_TIMELINE_TIMES, must_fit
from pinchpoint.importers._packed import unpacked
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
Row = tuple[int, int, int, int]


class _Block(NamedTuple):
    address: int
    size: int
    category: int


def claims(path: Path, head: bytes) -> bool:
    """A list of lists of four whole numbers, or of times and sums beside each other."""
    text = head.lstrip()
    if not text.startswith(b"[["):
        return False
    first = text[2:].partition(b"]")[0].split(b",")
    return len(first) == 4 and all(part.strip().lstrip(b"-").isdigit() for part in first)


def read(path: Path) -> Trace:
    """The timeline as an allocator's history, each block with its category as its stack."""
    rows = _rows(path)
    events, alive, lost = _events(rows)
    if not len(events):
        raise UnreadableFile(
            f"{path}: a memory timeline without a single event",
            hint="record with profile_memory=True, record_shapes=True, with_stack=True",
        )
    frames = tuple(Frame(CATEGORY_FILE, 0, name) for name in CATEGORIES)
    places = np.arange(len(CATEGORIES) + 1, dtype=np.int64)
    names = Names()
    facts = [Fact("pairs-unmatched", lost)] if lost else []
    return Trace(
        source=Source(str(path), FORMAT, path.stat().st_size, recorder="torch.profiler"),
        snapshot=MemorySnapshot(
            events=events,
            segments=_segments(alive),
            blocks=_blocks(alive),
            stacks=Stacks(frames, places, places[:-1].astype(np.int32)),
            layout=False,
        ),
        health=health_table(facts, names),
        names=names.freeze(),
    )


def _rows(path: Path) -> list[Row]:
    with unpacked(path) as plain:
        if plain.stat().st_size > _MOST_BYTES:
            raise HostileFile(f"{path}: larger than {_MOST_BYTES >> 30} GB", hint="record less")
        must_fit(path, plain.stat().st_size, MEMORY_TIMELINE_TIMES)
        try:
            found: list[Row] = msgspec.json.decode(plain.read_bytes(), type=list[Row])
        except msgspec.DecodeError as error:
            raise UnreadableFile(
                f"{path}: cut off, or no memory timeline ({error})", hint="copy it again"
            ) from None
    return found


def _events(rows: list[Row]) -> tuple[Table, list[_Block], int]:
    """Allocations and frees, the blocks that are left, and how many frees found no block."""
    begin = min((time for time, *_ in rows if time >= 0), default=0)
    live: dict[tuple[int, int], deque[_Block]] = defaultdict(deque)
    out: list[tuple[int, int, int, int, int]] = []
    following, lost = _ALIGNED, 0
    for time, _, size, category in rows:
        kind = category if 0 <= category < len(CATEGORIES) else len(CATEGORIES) - 1
        blocks = live[abs(size), kind]
        at_us = max(time, begin) // 1000
        if size > 0:
            blocks.append(_Block(following, size, kind))
            out.append((AllocatorAction.ALLOC, following, size, at_us, kind))
            following += -(-size // _ALIGNED) * _ALIGNED
        elif size < 0 and blocks:
            address = blocks.popleft().address
            for step in (AllocatorAction.FREE_REQUESTED, AllocatorAction.FREE_COMPLETED):
                out.append((step, address, -size, at_us, kind))
        else:
            lost += size != 0
    names = ("action", "address", "bytes", "time_us", "stack")
    values = np.array(out, np.int64).reshape(-1, len(names))
    columns = {name: values[:, at] for at, name in enumerate(names)}
    zeros = np.zeros(len(out), np.int64)
    alive = sorted(block for blocks in live.values() for block in blocks)
    return table("allocator_events", {"device": zeros, "stream": zeros, **columns}), alive, lost


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
