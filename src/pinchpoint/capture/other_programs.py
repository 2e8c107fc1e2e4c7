"""What other programs did on the machine while this one was measured.

Their share makes steps longer than they are alone, and nothing in the program explains it.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

BUSY_CORES_RATIO = 0.85  # below, a thread of the program finds a free core nearly always
OTHERS_RATIO = 0.25  # of all cores: less hardly shifts a median
PRESENT_RATIO = 0.25  # of the looks, on average; the last program may still be leaving the device
GIB = 1024.0**3


def company(
    devices: Sequence[Mapping[str, Any]], host: Mapping[str, Any], cores: int | None = None
) -> dict[str, Any]:
    """For ``metrics.json``: figures of others, and ``sentences`` for people where they matter.

    ``devices`` and ``host`` are the sampled metrics in short. What was not sampled is None.
    """
    on_gpu = [_on_device(device) for device in devices]
    cpu = _on_host(host, cores or os.cpu_count() or 1)
    sentences = [text for text in map(_about_device, on_gpu) if text]
    if (about := _about_host(cpu)) is not None:
        sentences.append(about)
    return {"gpu": on_gpu, "cpu": cpu, "sentences": sentences}


def _on_device(device: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "device": device["device"],
        "most_processes": _of(device, "other_process_count", "max"),
        "mean_processes": _of(device, "other_process_count", "mean"),
        "mean_own_processes": _own(device),
        "most_memory_bytes": _of(device, "other_memory_bytes", "max"),
    }


def _own(device: Mapping[str, Any]) -> float | None:
    every, others = (_of(device, f"{who}process_count", "mean") for who in ("", "other_"))
    return None if every is None or others is None else round(max(every - others, 0.0), 3)


def _on_host(host: Mapping[str, Any], cores: int) -> dict[str, Any]:
    busy, ours = _of(host, "cpu_ratio", "mean"), _of(host, "cpu_cores_used", "mean")
    others = None if busy is None or ours is None else round(max(busy * cores - ours, 0.0), 3)
    return {"cores": cores, "busy_ratio": busy, "cores_used_by_others": others}


def _about_device(seen: Mapping[str, Any]) -> str | None:
    count, held = seen["most_processes"], seen["most_memory_bytes"]
    if not count or seen["mean_processes"] < PRESENT_RATIO or not seen["mean_own_processes"]:
        return None  # also where the run is on another device of the machine
    memory = "" if held is None else f", holding {held / GIB:.1f} GiB"
    return (
        f"GPU {seen['device']} was shared: up to {count:.0f} process(es) of others were on it"
        f"{memory}; steps may be longer than alone"
    )


def _about_host(cpu: Mapping[str, Any]) -> str | None:
    busy, others, cores = cpu["busy_ratio"], cpu["cores_used_by_others"], cpu["cores"]
    if busy is None or others is None:
        return None
    if busy < BUSY_CORES_RATIO or others < OTHERS_RATIO * cores:
        return None
    return (
        f"the machine was busy: other programs used {others:.1f} of its {cores} cores, and "
        f"{100 * busy:.0f} % of all cores' time was taken; host work may take longer than alone"
    )


def _of(metrics: Mapping[str, Any], name: str, which: str) -> float | None:
    spread = metrics.get(name)
    return spread[which] if isinstance(spread, Mapping) else None
