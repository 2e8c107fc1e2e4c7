"""Looks at a worker process of a data loader while it makes batches."""

import contextlib
import os
import time
from pathlib import Path

from pinchpoint.capture.samples.sampler import Sampler
from pinchpoint.run_folder.layout import SAMPLES, SAMPLES_SCHEMA, write_json

EVERY_S = 0.05  # there are often many workers on few cores
FIRST_NOTE_LOOKS = 20  # one second of work
AGAIN_S = 5.0  # workers are killed without a word: what was seen is written again and again


class WorkerSamples:
    """Samples of one worker; ``busy`` while it makes a batch."""

    def __init__(self, folder: Path, worker: int | None) -> None:
        self.busy = False
        self._path = folder / SAMPLES / f"worker.{os.getpid()}.json"
        self._worker = worker
        self._write_at = 0.0
        self._sampler = Sampler(lambda: not self.busy, EVERY_S, self._maybe_write)
        self._sampler.start()

    def _maybe_write(self) -> None:
        if self._sampler.looks < FIRST_NOTE_LOOKS or time.monotonic() < self._write_at:
            return
        self._write_at = time.monotonic() + AGAIN_S
        sampled = self._sampler.document()
        for thread in sampled["threads"]:
            thread["stacks"] = thread["stacks"] if thread["main"] else []
        numbers = [number for thread in sampled["threads"] for number, _ in thread["stacks"]]
        frames, stacks = self._sampler.table.spelt(numbers)
        rows = {number: row for row, number in enumerate(stacks)}
        for thread in sampled["threads"]:
            thread["stacks"] = [[rows[n], looks] for n, looks in thread["stacks"] if n in rows]
        document = {
            "schema": SAMPLES_SCHEMA,
            "pid": os.getpid(),
            "worker": self._worker,
            "cost_ns": self._sampler.cost_ns,
            "frames": frames,
            "stacks": list(stacks.values()),
            "sampled": sampled,
        }
        with contextlib.suppress(OSError):
            write_json(self._path, document)
