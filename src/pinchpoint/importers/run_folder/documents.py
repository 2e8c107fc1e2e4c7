"""What a run folder says in words, as far as it can be read.

A document that is cut off or no JSON costs what hangs on it, and not the recordings: which files a
process wrote stands in their names, too.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from pinchpoint.errors import UnreadableFile
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.run_folder.documents import (
    EnvironmentDocument,
    ProcessDocument,
    ReadDocument,
    RecordingNote,
    RunDocument,
    WorkerDocument,
    read_if_there,
)
from pinchpoint.run_folder.layout import (
    ENVIRONMENT_FILE,
    LOADER,
    METRICS_FILE,
    NAMES,
    PROCESSES,
    RUN_FILE,
    SCHEMA,
    TRACES,
)
from pinchpoint.run_folder.metrics import MetricsDocument

MOST_PROCESSES = 100_000  # of a job; bounds what a hostile folder costs
_MOST_WORKERS = 4096  # of loaders in a process; bounds what a hostile document costs
# What hangs on each document: the command and the times of a run, and so on.
_SAYS = {
    RUN_FILE: "the command, how the run passed and what went wrong in it",
    ENVIRONMENT_FILE: "its machine and its environment",
    METRICS_FILE: "what all ranks took without the profiler, and who else used the machine",
    PROCESSES: "what this process took without the profiler, its loaders and its device",
    LOADER: "what this worker did",
}
_STEM = regex(r"rank(?P<rank>\d{1,9})(?:of(?P<ranks>\d{1,9}))?\.")
_BESIDE = ("late", "rare")  # as recordings for names are called that are of certain steps

Document = TypeVar("Document", bound=msgspec.Struct)


@dataclass(frozen=True)
class Documents:
    """Everything that the folder says in words."""

    run: ReadDocument[RunDocument]
    processes: tuple[ReadDocument[ProcessDocument], ...]
    environment: ReadDocument[EnvironmentDocument]
    workers: tuple[ReadDocument[WorkerDocument], ...]
    metrics: ReadDocument[MetricsDocument]
    unread: tuple[str, ...]  # a sentence about each document that cannot be read

    @property
    def problems(self) -> tuple[str, ...]:
        """What went wrong in the run, and then what is wrong with its documents."""
        found: list[ReadDocument[Any]] = [self.run, self.environment, self.metrics]
        found += [*self.processes, *self.workers]
        return (*self.run.document.problems, *(p for each in found for p in each.problems))

    def recordings(self) -> Iterator[tuple[ReadDocument[ProcessDocument], RecordingNote]]:
        """Of each process that has files, the newest; the lowest rank first."""
        for process in sorted(self.processes, key=lambda p: p.document.rank or 0):
            if files := process.document.files:
                yield process, files[-1]

    def first(self) -> ReadDocument[ProcessDocument]:
        """The first process, whatever it left."""
        return next(iter(self.processes), ReadDocument(ProcessDocument()))

    def why_nothing(self) -> str:
        """What to say where nothing was recorded."""
        if self.problems or self.unread:
            return (*self.problems, *self.unread)[0]
        if self.run.document.status == "running":
            return "the run has not ended, or Pinchpoint was killed before it had"
        return "nothing was recorded"

    def for_display(self, process: ReadDocument[ProcessDocument]) -> Mapping[str, object]:
        """env.json as it stands, with the process, the loader's workers and the metrics beside."""
        return MappingProxyType(
            {
                **self.environment.plain,
                "process": process.plain,
                "loader_workers": [worker.plain for worker in self.workers],
                "metrics": self.metrics.plain,
            }
        )


def documents_of(path: Path) -> Documents:
    """All of a folder. Raises UnreadableFile where ``run.json`` is of another version."""
    unread: list[str] = []

    def told(part: Path, kind: type[Document], says: str) -> ReadDocument[Document]:
        try:
            return read_if_there(part, kind)
        except UnreadableFile as error:
            why = error.message.removeprefix(f"{part}: ")
            name = part.relative_to(path)
            unread.append(f"{name}: {why}; it would say {_SAYS[says]}")
            return ReadDocument(kind())

    def process(part: Path) -> ReadDocument[ProcessDocument]:
        before = len(unread)
        found = told(part, ProcessDocument, PROCESSES)
        return found if len(unread) == before else ReadDocument(_by_its_files(path, part.stem))

    run = told(path / RUN_FILE, RunDocument, RUN_FILE)
    if not unread and run.plain.get("schema") != SCHEMA:
        raise UnreadableFile(
            f"{path / RUN_FILE}: schema {run.plain.get('schema')!r}, not {SCHEMA}",
            hint="read it with the version of Pinchpoint that wrote it",
        )
    return Documents(
        run,
        tuple(map(process, sorted((path / PROCESSES).glob("rank*.json"))[:MOST_PROCESSES])),
        told(path / ENVIRONMENT_FILE, EnvironmentDocument, ENVIRONMENT_FILE),
        tuple(
            told(worker, WorkerDocument, LOADER)
            for worker in sorted((path / LOADER).glob("worker.*.json"))[:_MOST_WORKERS]
        ),
        told(path / METRICS_FILE, MetricsDocument, METRICS_FILE),
        tuple(unread),
    )


def _by_its_files(path: Path, stem: str) -> ProcessDocument:
    """A process by the names of what it left: ``rank00000of00002.host.4711`` and what follows."""
    notes = [RecordingNote(file=name) for name in _called(path / TRACES, stem)]
    for name in _called(path / NAMES, stem):
        kind = name.removeprefix(f"{stem}.").partition(".")[0]
        notes.append(RecordingNote(file=name, window=kind if kind in _BESIDE else "names"))
    ranks, pid = _STEM.match(f"{stem}."), stem.rpartition(".")[2]
    rank, of = ranks.group("rank", "ranks") if ranks else (None, None)
    return ProcessDocument(
        rank=None if rank is None else int(rank),
        world_size=None if of is None else int(of),
        pid=int(pid) if pid.isdecimal() and len(pid) < 10 else None,
        complete=False,
        recordings=tuple(notes),
    )


def _called(folder: Path, stem: str) -> list[str]:
    """Recordings of a process, the newest last."""
    found = [p for p in folder.glob("*") if p.name.startswith(f"{stem}.")]
    return [p.name for p in sorted(found, key=lambda p: (p.stat().st_mtime_ns, p.name))]
