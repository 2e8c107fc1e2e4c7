"""Hand-made snapshots as the dictionaries that torch pickles."""

import gzip
import pickle
from pathlib import Path
from typing import Any

FRAMES = [
    {"filename": "torch/nn/modules/linear.py", "line": 134, "name": "forward"},
    {"filename": "model.py", "line": 12, "name": "forward"},
]
BASE = 140_000_000_000_000


def event(action: str, addr: int, size: int, **more: Any) -> dict[str, Any]:
    return {
        "action": action,
        "addr": addr,
        "size": size,
        "stream": 0,
        "time_us": more.pop("time_us", 1_795_819_060_140_499),
        "compile_context": "N/A",
        "user_metadata": "",
        "frames": more.pop("frames", FRAMES),
        **more,
    }


def block(addr: int, size: int, requested: int, state: str) -> dict[str, Any]:
    return {
        "address": addr,
        "size": size,
        "requested_size": requested,
        "state": state,
        "frames": FRAMES if state != "inactive" else [],
    }


def segment(addr: int, size: int, blocks: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "device": 0,
        "address": addr,
        "total_size": size,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
        **more,
    }


def small() -> dict[str, Any]:
    """One small segment; two blocks allocated, one freed again."""
    return {
        "segments": [
            segment(
                BASE,
                2 << 20,
                [
                    block(BASE, 1024, 1000, "active_allocated"),
                    block(BASE + 1024, (2 << 20) - 1024, 0, "inactive"),
                ],
            )
        ],
        "device_traces": [
            [
                event("segment_alloc", BASE, 2 << 20),
                event("alloc", BASE, 1000),
                event("alloc", BASE + 1024, 512),
                event("free_requested", BASE + 1024, 512),
                event("free_completed", BASE + 1024, 512),
            ],
            [],
        ],
        "allocator_settings": {"expandable_segments": False, "max_split_size": -1},
        "external_annotations": [
            {"name": "ProfilerStep#0", "stage": "START", "device": 0, "time_us": 5},
            {"name": "ProfilerStep#0", "stage": "END", "device": 0, "time_us": 9},
        ],
    }


def many(events: int) -> dict[str, Any]:
    """A block that comes and goes, with fresh texts and lists as torch makes them.

    Of the lists some are empty, and some long ones differ in nothing but their last frames.
    """
    trace = [event("segment_alloc", BASE, 2 << 20)]
    for i in range(events):
        kind = ("alloc", "free_requested", "free_completed")[i % 3]
        stack = [dict(FRAMES[0]) if i < 3 else FRAMES[0], *FRAMES[1:]] * 12
        stack = stack[: (1, 2, 23, 0, 24)[i % 5]]
        one = event(kind, BASE + 512 * (i // 3 % 7), 512 + i // 3, frames=stack, time_us=10**15 + i)
        if i % 1000 == 999:
            one |= {"addr": (1 << 63) + i, "user_metadata": f"note {i}"}
        one["compile_context"] = "".join(["N", "/A"])
        trace.append(one)
    return {"segments": [], "device_traces": [trace]}


def write(path: Path, snapshot: Any, protocol: int = 4) -> Path:
    data = pickle.dumps(snapshot, protocol)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
