"""Puts together what the processes of a run wrote: ``run.json``, ``metrics.json``, and notes."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean as mean
from statistics import median
from typing import Any

import msgspec

from pinchpoint.capture.launch.folder import count_to_the_end, remove_leftovers
from pinchpoint.capture.launch.launcher import Ended
from pinchpoint.capture.launch.missing import problems_of
from pinchpoint.capture.settings import Settings
from pinchpoint.errors import UnreadableFile
from pinchpoint.monitor.environment import redacted_command
from pinchpoint.run_folder.documents import (
    Document,
    MemoryPeaks,
    ProcessDocument,
    RunDocument,
    WorkerDocument,
    read,
    write,
)
from pinchpoint.run_folder.layout import (
    LOADER,
    METRICS_FILE,
    PROCESSES,
    RUN_FILE,
    SAMPLES,
    TRACES,
)
from pinchpoint.run_folder.metrics import (
    DataWait,
    LaunchMicroseconds,
    MetricsDocument,
    Others,
    RankMetrics,
    StepMetrics,
    StepPercentiles,
    UnprofiledSteps,
    WorkerMetrics,
    cores_taken,
)
from pinchpoint.run_folder.samples import SamplesDocument
from pinchpoint.run_folder.step_times import LaunchNote, StepTimes

# ------------------------------------------------------------------------------------------------
# What other programs did on the machine while this one was measured.
#
# Their share makes steps longer than they are alone, and nothing in the program explains it.


PRESENT_RATIO = 0.25  # of the looks, on average; the last program may still be leaving the device
GIB = 1024.0**3


def other_programs(
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
        "together": _together(device),
        "most_memory_bytes": _of(device, "other_memory_bytes", "max"),
    }


def _together(device: Mapping[str, Any]) -> bool | None:
    """Whether others and the run were there at once; the maxima are of the same looks or ours."""
    every, others = (_of(device, f"{who}process_count", "max") for who in ("", "other_"))
    return None if every is None or others is None else every > others > 0


def _on_host(host: Mapping[str, Any], cores: int) -> dict[str, Any]:
    busy, ours = _of(host, "cpu_ratio", "mean"), _of(host, "cpu_cores_used", "mean")
    others = None if busy is None or ours is None else round(max(busy * cores - ours, 0.0), 3)
    return {"cores": cores, "busy_ratio": busy, "cores_used_by_others": others}


def _about_device(seen: Mapping[str, Any]) -> str | None:
    count, held = seen["most_processes"], seen["most_memory_bytes"]
    if not count or seen["mean_processes"] < PRESENT_RATIO or not seen["together"]:
        return None  # also where the run is on another device of the machine
    memory = "" if held is None else f", holding {held / GIB:.1f} GiB"
    return (
        f"GPU {seen['device']} was shared: up to {count:.0f} process(es) of others were on it"
        f"{memory}; steps may be longer than alone"
    )


def _about_host(cpu: Mapping[str, Any]) -> str | None:
    if not cores_taken(cpu):
        return None
    busy, others, cores = cpu["busy_ratio"], cpu["cores_used_by_others"], cpu["cores"]
    return (
        f"the machine was busy: other programs used {others:.1f} of its {cores} cores, and "
        f"{100 * busy:.0f} % of all cores' time was taken; host work may take longer than alone"
    )


def _of(metrics: Mapping[str, Any], name: str, which: str) -> float | None:
    spread = metrics.get(name)
    return spread[which] if isinstance(spread, Mapping) else None


# ------------------------------------------------------------------------------------------------
# Puts together what the processes of a run wrote: ``run.json``, ``metrics.json``, and notes.


_NS_PER_MS = 1e6


def begin(folder: Path, command: Sequence[str], settings: Settings) -> None:
    """Write ``run.json`` before the program starts, so that a lost run explains itself."""
    write(folder / RUN_FILE, _run(command, settings, "running"))


def finish(folder: Path, command: Sequence[str], settings: Settings, ended: Ended) -> list[str]:
    """Write the final documents; returns what went wrong, in sentences."""
    remove_leftovers(folder)
    count_to_the_end(folder / PROCESSES)
    processes = notes(folder / PROCESSES, "*.json", ProcessDocument)
    workers = notes(folder / LOADER, "worker.*.json", WorkerDocument)
    problems = problems_of(folder, processes, settings, ended)
    run = msgspec.structs.replace(
        _run(command, settings, "ended"),
        started_unix_ns=ended.started_unix_ns,
        ended_unix_ns=ended.ended_unix_ns,
        exit_code=ended.exit_code,
        problems=tuple(problems),
        recordings=tuple(sorted(f"{TRACES}/{r.file}" for p in processes for r in p.files)),
        devices=tuple(ended.sampled.devices),
        no_devices=ended.sampled.no_devices,
        not_sampled=ended.sampled.missing,
    )
    sampled = notes(folder / SAMPLES, "rank*.json", SamplesDocument)
    write(folder / METRICS_FILE, metrics(processes, workers, ended, sampled))
    write(folder / RUN_FILE, run)
    return problems


def notes(folder: Path, pattern: str, kind: type[Document]) -> list[Document]:
    """The documents that processes left, by rank; broken ones are left out."""
    found = []
    for path in sorted(folder.glob(pattern)):
        try:
            found.append(read(path, kind).document)
        except UnreadableFile:
            continue
    return found


def metrics(
    processes: Sequence[ProcessDocument],
    workers: Sequence[WorkerDocument],
    ended: Ended,
    sampled: Sequence[SamplesDocument] = (),
) -> MetricsDocument:
    """``metrics.json``: figures of the run without the profiler; null where not known."""
    first = processes[0] if processes else None
    seconds = (ended.ended_unix_ns - ended.started_unix_ns) / 1e9
    devices, host = ended.sampled.summary.devices(), ended.sampled.summary.host()
    return MetricsDocument(
        exit_code=ended.exit_code,
        duration_s=round(seconds, 3),
        processes=len(processes),
        world_size=first.world_size if first else None,
        steps=_steps(first.steps) if first else None,
        threaded=first.threaded if first else None,
        data_wait=_data_wait(first.steps) if first else None,
        ranks=tuple(_rank(p) for p in processes),
        loader_workers=_workers(workers),
        memory=_memory(processes),
        gpu=tuple(devices),
        host=host,
        others=msgspec.convert(other_programs(devices, host), Others),
        samples_cost_ms=_ms(sampled[0].cost_ns) if sampled else None,
        samples_once_ms=_ms(sampled[0].sampled.once_ns) if sampled else None,
        profiled=any(p.files for p in processes),
    )


def _run(command: Sequence[str], settings: Settings, status: str) -> RunDocument:
    asked = asdict(settings)
    asked.pop("folder")
    asked.pop("launcher_pid")
    return RunDocument(
        status=status,
        command=tuple(redacted_command(command)),
        working_directory=str(Path.cwd()),
        asked=asked,
        written_utc=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _steps(steps: StepTimes) -> StepMetrics:
    run, unprofiled = steps.run, steps.unprofiled_ns
    total_s = run.total_ns / 1e9
    return StepMetrics(
        found_by=steps.by,
        place=steps.place,
        count=steps.count,
        steady=steps.steady,
        unprofiled_ms=UnprofiledSteps(
            clock=steps.clock,
            count=len(unprofiled),
            median=_median_ms(unprofiled),
            mean=_ms(mean(unprofiled)) if unprofiled else None,
            before_median=_median_ms(steps.before_ns),
            after_median=_median_ms(steps.after_ns),
        ),
        run_ms=StepPercentiles(
            p50=_ms(run.p50),
            p90=_ms(run.p90),
            p95=_ms(run.p95),
            p99=_ms(run.p99),
            least=_ms(run.least),
            most=_ms(run.most),
        ),
        steps_per_s=round(run.count / total_s, 4) if total_s else None,
        batches_per_step=steps.batches_per_step,
        recording_cost_ms=_ms(steps.cost_ns),
        launch_us=_launch(steps.launch_ns),
    )


def _launch(found: LaunchNote) -> LaunchMicroseconds:
    before, after = (None if ns is None else ns / 1e3 for ns in (found.before, found.after))
    return LaunchMicroseconds(before=before, after=after, why=found.why)


def _data_wait(steps: StepTimes) -> DataWait:
    run = steps.run
    return DataWait(
        median_ms=_median_ms(steps.wait_ns),
        of_run_ratio=round(run.wait_total_ns / run.total_ns, 4) if run.total_ns else None,
    )


def _rank(process: ProcessDocument) -> RankMetrics:
    return RankMetrics(
        rank=process.rank,
        host=process.host,
        unprofiled_median_ms=_median_ms(process.steps.unprofiled_ns),
        recordings=tuple(r.file for r in process.files if r.file),
    )


def _workers(workers: Sequence[WorkerDocument]) -> WorkerMetrics | None:
    if not workers:
        return None
    alive = sum(w.alive_ns for w in workers)
    return WorkerMetrics(
        processes=len(workers),
        at_once=max((w.workers or 0 for w in workers), default=0),
        batches=sum(w.batches for w in workers),
        busy_ratio=round(sum(w.busy_ns for w in workers) / alive, 4) if alive else None,
        torch_threads=max((w.torch_threads or 0 for w in workers), default=0),
    )


def _memory(processes: Sequence[ProcessDocument]) -> MemoryPeaks:
    def most(name: str) -> int | None:
        peaks = (getattr(p.memory, name) for p in processes)
        return max((peak for peak in peaks if peak is not None), default=None)

    return MemoryPeaks(**{name: most(name) for name in MemoryPeaks.__struct_fields__})


def _ms(ns: float | None) -> float | None:
    return None if ns is None else round(ns / _NS_PER_MS, 6)


def _median_ms(ns: Sequence[int]) -> float | None:
    return _ms(median(ns)) if ns else None
