"""Scanning with the compiled scanner on two threads, while this one unpacks the file."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from queue import SimpleQueue
from typing import Any

from pinchpoint.importers.kineto.document import Block, Blocks
from pinchpoint.importers.kineto.scan import Early, Joiner, Scanned, refuse_emptiness, walk
from pinchpoint.importers.kineto.text import Text

# Imported by name: tools that read imports know no compiled modules.
NativeScanner: Any = import_module("pinchpoint.importers.kineto._scan").NativeScanner

THREADS = 2  # unpacking takes a third of a core, so more of them would wait for text
BLOCKS_AHEAD = 3  # text that is held at a time


class _Team:
    """Scanners that take turns."""

    def __init__(self) -> None:
        self.scanners = [NativeScanner() for _ in range(THREADS)]
        self._free: SimpleQueue[int] = SimpleQueue()
        for position in range(THREADS):
            self._free.put(position)

    def scan(self, block: Block, limit: int) -> Early:
        position = self._free.get()
        scanner = self.scanners[position]
        try:
            return Early(walk(scanner, block, limit), scanner.flush(), position, limit)
        finally:
            self._free.put(position)


def scan_in_parallel(text: Text, rest: bytes, block_bytes: int) -> Scanned:
    """Scan a whole file."""
    team = _Team()
    repair = NativeScanner()  # for blocks that were scanned too early
    joiner = Joiner(repair, THREADS)
    blocks = Blocks(text, rest, block_bytes)
    ahead: deque[tuple[Block, Future[Early]]] = deque()
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            for block in blocks:
                ahead.append((block, pool.submit(team.scan, block, joiner.limit)))
                if len(ahead) > BLOCKS_AHEAD:
                    _join(joiner, ahead, blocks)
                    refuse_emptiness(text, joiner.scanned)
                if joiner.scanned.ended:
                    break
            while ahead and not joiner.scanned.ended:
                _join(joiner, ahead, blocks)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return joiner.finish([block for block, _ in ahead], (*team.scanners, repair))


def _join(joiner: Joiner, ahead: deque[tuple[Block, Future[Early]]], blocks: Blocks) -> None:
    block, early = ahead.popleft()
    if joiner.add(block, early.result()):
        blocks.give_back(block)
