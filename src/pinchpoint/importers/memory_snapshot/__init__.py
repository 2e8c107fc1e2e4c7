"""CUDA memory snapshots: what ``torch.cuda.memory._dump_snapshot`` writes, plain or gzipped.

The file is a pickle and untrusted; see ``plain_pickle.py`` for how it is read. Snapshots of every
torch version since 1.13 are read, and of ROCm and XPU builds, which use the same format.
"""

import zlib
from pathlib import Path
from typing import IO

import numpy as np

from pinchpoint.errors import HostileFile, UnreadableFile
from pinchpoint.importers.memory_snapshot.assemble import assemble
from pinchpoint.importers.memory_snapshot.collect import Collector
from pinchpoint.importers.memory_snapshot.plain_pickle import MALFORMED, load_plain
from pinchpoint.trace import (
    AllocatorAction,
    Device,
    MemorySnapshot,
    Source,
    Table,
    Thread,
    Trace,
    empty_table,
    table,
)
from pinchpoint.trace.arrays import distinct

FORMAT = "PyTorch memory snapshot"
FILES = (".pickle .pickle.gz .html", "torch.cuda.memory._dump_snapshot, _memory_viz")
READS: tuple[str, ...] = ("memory",)
NOT_READ = ""
MAX_BYTES = 16 << 30  # after gunzip; ten million events take 1 to 4 GB
MAX_EXPANSION = 300  # real snapshots shrink 13 to 60 times
EXPANSION_FROM_BYTES = 64 << 20  # less is harmless, however well it was packed


def claims(path: Path, head: bytes) -> bool:
    """A pickle of protocol 2 or later whose value is a dictionary."""
    if len(head) < 4 or head[0] != 0x80 or not 2 <= head[1] <= 5:
        return False
    start = 11 if head[2] == 0x95 else 2  # FRAME and its length
    return head[start : start + 1] == b"}" or path.suffix in (".pickle", ".pkl")


def read(path: Path) -> Trace:
    """The snapshot as a trace: ``snapshot`` and ``allocations`` are filled.

    A file that was cut off gives what is whole, marked as truncated. HostileFile for a pickle that
    asks for anything but plain data, or for more than a recording needs.
    """
    name = str(path)
    rows = Collector(name)
    with _opened(path) as file:
        source = _Bounded(file, name)
        root, complete = load_plain(source.read, rows, name)
    try:
        snapshot = assemble(root, rows, complete=complete and not source.damaged, name=name)
    except MALFORMED:
        raise UnreadableFile(
            f"{name}: a memory snapshot with values that no torch writes",
            hint="record it again with torch.cuda.memory._dump_snapshot(path)",
        ) from None
    origin_us = int(snapshot.events.filled("time_us", 0)[:1].sum())
    columns = (distinct(part["device"]) for part in (snapshot.events, snapshot.segments))
    used = np.union1d(*columns).tolist()
    return Trace(
        source=Source(
            name, FORMAT, path.stat().st_size, not snapshot.complete, recorder="torch.cuda.memory"
        ),
        names=rows.names.freeze(),
        threads=(Thread("?", "?", "the recording does not say"),),
        devices=tuple(Device(number) for number in used),
        origin_ns=origin_us * 1000 or None,
        allocations=allocations_of(snapshot, origin_us),
        snapshot=snapshot,
    )


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise UnreadableFile(
            f"{path}: {error.strerror or error}", hint="check the path and its permissions"
        ) from None


class _Bounded:
    """Reads a plain or gzipped file up to the limits above; stops quietly where it is cut off."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name = file, name
        head = file.read(2)
        file.seek(0)
        self._inflate = zlib.decompressobj(wbits=31) if head == b"\x1f\x8b" else None
        self._given = self._taken = 0
        self.damaged = False

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; none at the end."""
        text = self._file.read(size) if self._inflate is None else self._inflated(size)
        self._given += len(text)
        expanded = self._inflate is not None and self._given > EXPANSION_FROM_BYTES
        if self._given > MAX_BYTES or (expanded and self._given > MAX_EXPANSION * self._taken):
            raise HostileFile(
                f"{self._name}: refused: it unpacks to far more than a recording holds",
                hint="record with max_entries=1_000_000; do not trust this file",
            )
        return text

    def _inflated(self, size: int) -> bytes:
        inflate = self._inflate
        assert inflate is not None
        try:
            while not inflate.eof:
                packed = inflate.unconsumed_tail or self._file.read(1 << 16)
                if packed and not inflate.unconsumed_tail:
                    self._taken += len(packed)
                text = inflate.decompress(packed, size)
                if text:
                    return text
                if not packed:
                    break
        except zlib.error:
            pass
        self.damaged = not inflate.eof
        return b""


def allocations_of(snapshot: MemorySnapshot, origin_us: int) -> Table:
    """The ``allocations`` table: births and completed frees; times count from ``origin_us``."""
    events = snapshot.events
    action = events["action"]
    born = action == AllocatorAction.ALLOC
    rows = np.flatnonzero(born | (action == AllocatorAction.FREE_COMPLETED))
    if not len(rows):
        return empty_table("allocations")
    time_ns = (events.filled("time_us", 0)[rows] - origin_us) * 1000
    if np.any(time_ns[1:] < time_ns[:-1]):  # several devices, one after the other
        order = np.argsort(time_ns, kind="stable")
        rows, time_ns = rows[order], time_ns[order]
    size = events["bytes"][rows]
    return table(
        "allocations",
        {
            "time_ns": time_ns,
            "address": events["address"][rows],
            "bytes": np.where(born[rows], size, -size),
            "device": events["device"][rows],
            "thread": np.zeros(len(rows), np.int32),
        },
    )
