"""The committed recordings and what is true of them."""

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import pinchpoint as pp
from pinchpoint.analysis.memory.history import History, histories
from pinchpoint.trace import Trace, table

FOLDER = Path(__file__).parents[2] / "data" / "memory"
NAMES = sorted(p.name.removesuffix(".pickle.gz") for p in FOLDER.glob("*.pickle.gz"))


@cache
def recording(name: str) -> Trace:
    return pp.load(FOLDER / f"{name}.pickle.gz")


def history(name: str) -> History:
    return histories(recording(name))[0]


@cache
def truth(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / "truth.json").read_text())[name]


def cut_off(trace: Trace, whole: History, keep: int) -> Trace:
    """The recording as if its snapshot had been taken after the first ``keep`` events."""
    replay, snapshot = whole.replay, trace.snapshot
    live = np.flatnonzero(replay.blocks.alive(keep - 1))
    live = live[np.argsort(replay.blocks.address[live])]
    held = [h.range for h in replay.held if h.birth < keep <= h.death]
    held.sort(key=lambda r: r.start)
    starts = np.array([r.start for r in held], np.uint64)
    address = replay.blocks.address[live]
    segments = table(
        "allocator_segments",
        {
            "device": np.zeros(len(held)),
            "address": starts,
            "bytes": np.array([r.end - r.start for r in held]),
            "stream": np.array([r.stream for r in held], np.uint64),
            "small": np.array([r.small for r in held]),
            "expandable": np.array([r.mapped for r in held]),
            "first_block": np.zeros(len(held)),
            "blocks": np.zeros(len(held)),
        },
    )
    blocks = table(
        "allocator_blocks",
        {
            "segment": np.searchsorted(starts, address, "right") - 1,
            "address": address,
            "bytes": replay.size[live],
            "requested_bytes": replay.blocks.requested[live],
            "state": np.ones(len(live)),
            "stack": replay.blocks.stack[live],
        },
        {"stack": ~replay.blocks.has_stack[live]},
    )
    until = int(replay.time_us[keep - 1])
    shorter = dataclasses.replace(
        snapshot,
        events=snapshot.events.take(np.arange(keep)),
        segments=segments,
        blocks=blocks,
        marks=tuple(m for m in snapshot.marks if m.time_us <= until),
    )
    return dataclasses.replace(trace, snapshot=shorter)
