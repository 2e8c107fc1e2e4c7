"""What the documents of a run folder say of the job, without its recordings: one row of a fleet."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.errors import PinchpointError
from pinchpoint.report.plain import plain
from pinchpoint.run_folder.documents import (
    EnvironmentDocument,
    ProcessDocument,
    RunDocument,
    read,
    read_if_there,
)
from pinchpoint.run_folder.layout import ENVIRONMENT_FILE, METRICS_FILE, PROCESSES, RUN_FILE
from pinchpoint.run_folder.metrics import MetricsDocument

LONGEST = 300  # characters of a text from a file
MS = 1e6  # nanoseconds


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A run. None: not known. ``docs/reference/fleet.md`` describes the columns."""

    name: str  # of the folder, below the root
    program: str = ""  # the command
    script: str = ""  # the script or module in it
    status: str = ""  # running, ended
    started_unix_ns: int | None = None
    hours: float | None = None
    exit_code: int | None = None
    host: str | None = None
    device: str = ""
    ranks: int = 1
    commit: str | None = None
    dirty: bool | None = None  # uncommitted changes
    torch: str | None = None
    steps: int | None = None
    step_ms: float | None = None  # median of all steps of the run, without the profiler
    p99_ms: float | None = None
    mean_ms: float | None = None
    wait_ratio: float | None = None  # of the run, that the first rank waited for batches
    device_busy_ratio: float | None = None  # as the devices' own counters say, on average
    recordings: int = 0
    slower: tuple[str, ...] = ()  # why each recording of a watch was made
    problem: str = ""  # why nothing is known


def job_facts(folder: Path, name: str) -> JobFacts:
    """The row of a run folder; what cannot be read says why."""
    try:
        run = read(folder / RUN_FILE, RunDocument).document
        metrics = read_if_there(folder / METRICS_FILE, MetricsDocument).document
        environment = read_if_there(folder / ENVIRONMENT_FILE, EnvironmentDocument).plain
        first = _first_process(folder)
    except PinchpointError as error:
        return JobFacts(name=name, problem=plain(error.message, LONGEST))
    steps = metrics.steps
    hours = None
    if run.started_unix_ns is not None and run.ended_unix_ns is not None:
        hours = max(run.ended_unix_ns - run.started_unix_ns, 0) / 3.6e12
    ended = steps is not None and steps.run_ms.p50 is not None
    here, dirty = first.steps.run, _at(environment, "code", "dirty")
    mean_ns = here.total_ns / here.count if here.count else None
    return JobFacts(
        name=name,
        program=plain(shlex.join(_without_interpreter(run.command)), LONGEST),
        script=plain(_script(run.command), LONGEST),
        status=plain(run.status, LONGEST),
        started_unix_ns=run.started_unix_ns,
        hours=hours,
        exit_code=run.exit_code,
        host=_text(first.host),
        device=plain(", ".join(dict.fromkeys(run.devices)), LONGEST),
        ranks=max(metrics.world_size or first.world_size or 1, 1),
        commit=_text(_at(environment, "code", "commit")),
        dirty=dirty if isinstance(dirty, bool) else None,
        torch=_text(_at(environment, "software", "distributions", "torch")),
        steps=first.steps.count or None,
        step_ms=steps.run_ms.p50 if steps and ended else _ms(here.p50),
        p99_ms=steps.run_ms.p99 if steps and ended else _ms(here.p99),
        mean_ms=_ms(mean_ns),
        wait_ratio=metrics.data_wait.of_run_ratio if metrics.data_wait else None,
        device_busy_ratio=_busy(metrics),
        recordings=len(run.recordings),
        slower=tuple(plain(why, LONGEST) for why in first.triggers),
    )


def _first_process(folder: Path) -> ProcessDocument:
    """What the first rank saw; also of a run that still goes on."""
    found = sorted((folder / PROCESSES).glob("rank*.json"))
    return read(found[0], ProcessDocument).document if found else ProcessDocument()


def _without_interpreter(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command without the path of Python, which differs from host to host."""
    first = Path(command[0]).name if command else ""
    return command[1:] if first.startswith("python") else command


def _script(command: tuple[str, ...]) -> str:
    """The script or module; options and their values are left out."""
    words = _without_interpreter(command)
    scripts = [word for word in words if word.endswith(".py")]
    if scripts:
        return Path(scripts[0]).name
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    return Path(words[0]).name if words else ""


def _busy(metrics: MetricsDocument) -> float | None:
    found = list(_means(metrics, "any_kernel_ratio"))
    return sum(found) / len(found) if found else None


def _means(metrics: MetricsDocument, metric: str) -> Iterator[float]:
    for device in metrics.gpu:
        mean = _at(device, metric, "mean")
        if isinstance(mean, int | float):
            yield float(mean)


def _at(document: Any, *names: str) -> Any:
    for name in names:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _text(value: Any) -> str | None:
    return plain(value, LONGEST) if isinstance(value, str) and value else None


def _ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / MS
