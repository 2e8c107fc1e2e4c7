"""What is said of the files that a command was given: a report each, and one for each job."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pinchpoint.cli.output import counting, note, reading
from pinchpoint.cli.recordings._window import NO_WINDOW, Window
from pinchpoint.errors import PinchpointError, UnreadableFile, UsageError
from pinchpoint.frozen import dataclass
from pinchpoint.importers import execution_trace, load
from pinchpoint.importers.files.remote import is_url
from pinchpoint.importers.open import as_folder, format_of, guarded
from pinchpoint.json_text import encoded
from pinchpoint.report import Report
from pinchpoint.run_folder.layout import RUN_FILE
from pinchpoint.trace import ApiKind, Trace
from pinchpoint.trace.processes import processes

if TYPE_CHECKING:  # what serves many files is imported when there are some
    from pinchpoint.report.documents.ranks import RanksReport


Document = TypeVar("Document", bound=msgspec.Struct)


@dataclass(frozen=True)
class Asked:
    """What of each recording is looked at, and whether tables and rooflines are wanted."""

    part: Window = NO_WINDOW
    detailed: bool = True

    def trace(self, file: Path) -> Trace:
        """The recording, or the part of it."""
        with reading(file) as progress:
            trace = load(file, progress, self.part.part)
        return self.part.cut(trace)

    def report(self, trace: Trace) -> Report:
        """What is said of it."""
        from pinchpoint.program.at_hand import with_code
        from pinchpoint.report.assemble.report import diagnose

        report = diagnose(trace, detailed=self.detailed)
        return msgspec.structs.replace(report, findings=with_code(report.findings, trace))


EVERYTHING = Asked()
_NO_ANSWER = "pinchpoint diagnose FILE says what is wrong with one and how to record again"


@dataclass(frozen=True)
class Answers:
    """Reports of recordings and of jobs, and the exit code that says whether all could be read."""

    reports: list[Report] = field(default_factory=list)
    jobs: "list[RanksReport]" = field(default_factory=list)
    code: int = 0
    one_run: bool = False  # the report is of the run that the job is
    trace: Trace | None = None  # of the one report, for its page
    within: "Answers | None" = None  # of several processes in the one file that was given

    def sorted_by(self, column: str) -> "Answers":
        """The same with tables in the order of a column. Raises UsageError where none has it."""
        reports, jobs = self.reports, self.jobs
        from pinchpoint.report.documents.order import tables_by

        if reports:
            reports = tables_by(reports, column)
        elif jobs:
            jobs = tables_by(jobs, column)
        return replace(self, reports=reports, jobs=jobs)

    def redacted(self, files: Sequence[Path]) -> "Answers":
        """The same without folders, arguments and settings."""
        private = folders_of(files)
        from pinchpoint.report.redact import redacted, redacted_trace

        return replace(
            self,
            reports=[redacted(report, *private) for report in self.reports],
            jobs=[redacted(job, *private) for job in self.jobs],
            trace=self.trace and redacted_trace(self.trace),
            within=self.within and self.within.redacted(files),
        )


def shared(document: Document, files: Sequence[Path], *, redact: bool) -> Document:
    """The document, or what may be passed on of it."""
    from pinchpoint.report.redact import redacted

    return redacted(document, *folders_of(files)) if redact else document


def folders_of(files: Sequence[Path]) -> tuple[str, ...]:
    """The folders of files as answers may spell them, which patterns miss where they hold spaces.

    Longest first; none but the root.
    """
    places = [Path.home(), Path.cwd()]
    for file in files:
        places += [file.parent, file.absolute().parent, file.resolve().parent]
    return tuple(sorted({f"{p}{os.sep}" for p in places if p.name}, key=len, reverse=True))


def answers_of(files: Sequence[Path], asked: Asked = EVERYTHING) -> Answers:
    """Of one file, archive or folder all that is in it; of several files each, and their job.

    The first problem with a file that stands alone raises; with one among others it is noted.
    """
    beside = [file for file in files if format_of(file) == execution_trace.FORMAT]
    if len(files) == 2 and len(beside) == 1:
        (file,) = (file for file in files if file not in beside)
        alone = replace(asked, part=NO_WINDOW).trace(file)
        with guarded(beside[0], execution_trace.FORMAT):
            trace = execution_trace.joined(alone, beside[0])
        part = asked.part.cut(trace)
        return Answers([asked.report(part)], trace=part)
    if len(files) > 1:
        return _of_files(files, asked)
    with as_folder(files[0]) as place:
        found = _of_place(place, asked)
        return found if place == files[0] else _said_of(found, place, files[0])


def _of_place(place: Path, asked: Asked) -> Answers:
    from pinchpoint.importers.ranks.files import check_one_job, groups_in, several_ranks

    if several_ranks(place):
        return _of_job(place, asked)
    if place.is_dir() and format_of(place) is None and (groups := groups_in(place)):
        return _of_groups(groups, asked)
    try:
        trace = asked.trace(place)
    except UnreadableFile:
        check_one_job(place)  # says more about a folder
        raise
    return Answers([asked.report(trace)], trace=trace, within=_within(trace, asked))


def _within(trace: Trace, asked: Asked) -> "Answers | None":
    """Of each process that one file holds its own report, and one of them as ranks of a job."""
    found = processes(trace) if isinstance(trace, Trace) else ()
    if not found:
        return None

    ranks = [
        replace(part.trace, rank=number, world_size=len(found)) for number, part in enumerate(found)
    ]
    reports = [asked.report(rank) for rank in ranks]
    if any(report.device is None or not report.device.collectives for report in reports):
        return Answers([asked.report(part.trace) for part in found])  # programs of their own
    from pinchpoint.jobs.parts import job_of, record_from, without_guesses

    job = job_of([record_from(rank, said) for rank, said in zip(ranks, reports, strict=True)])
    return Answers([without_guesses(report) for report in reports], [] if job is None else [job])


def _of_job(folder: Path, asked: Asked) -> Answers:
    """The job, and of a run its first rank, beside what else the run knows."""
    job = _job([str(folder)], asked)
    if not (folder / RUN_FILE).is_file():
        return Answers([], [job])
    trace = asked.trace(folder)
    from pinchpoint.jobs.parts import without_guesses

    return Answers([without_guesses(asked.report(trace))], [job], one_run=True, trace=trace)


def _job(places: Sequence[str], asked: Asked) -> "RanksReport":
    if asked.part != NO_WINDOW:
        raise UsageError("a window is one of one recording", hint="name the file of one rank")
    from pinchpoint.jobs import diagnose_ranks

    with counting() as progress:
        job = diagnose_ranks(places, progress=progress)
    must_be_usable(job)
    return job


def must_be_usable(report: "RanksReport") -> None:
    """Raise UnreadableFile where no recording could be used."""
    if not report.job.ranks:
        from pinchpoint.report.words.ranks import nothing_usable

        raise UnreadableFile(nothing_usable(report), hint=_NO_ANSWER)


def _of_groups(groups: Sequence[Sequence[str]], asked: Asked) -> Answers:
    """What a folder holds; one bad file does not stop the rest."""
    from pinchpoint.importers.ranks.files import several_ranks

    reports: list[Report] = []
    jobs: list[RanksReport] = []
    unread: dict[tuple[str, str], list[tuple[str, PinchpointError]]] = {}
    for group in groups:
        try:
            if len(group) > 1 or several_ranks(Path(group[0])):
                jobs.append(_job(group, asked))
            else:
                reports.append(asked.report(asked.trace(Path(group[0]))))
        except PinchpointError as error:
            if len(groups) == 1:
                raise
            unread.setdefault(_reason(error, group[0]), []).append((group[0], error))
    codes = [_told_together(alike) for alike in unread.values()]
    return Answers(reports, jobs, codes[-1] if codes else 0)


def _reason(error: PinchpointError, place: str) -> tuple[str, str]:
    """What is wrong and the next step, whatever the file is called and holds."""
    name = Path(place).name
    return error.message.removeprefix(f"{place}: ").partition(" (")[0], error.hint.replace(name, "")


MOST_NAMED = 3  # of files with one reason, beside the first


def _told_together(unread: Sequence[tuple[str, PinchpointError]]) -> int:
    """Files of one folder that have the same wrong with them, in one line: a folder holds much
    that is no recording."""
    (_, first), *others = unread
    if others:
        names = ", ".join(Path(place).name for place, _ in others[:MOST_NAMED])
        left = len(others) - MOST_NAMED
        names += f" and {left} more" if left > 0 else ""
        first.message += f"; the same of {names}"
    return _told(first)


def _with_captured(files: Sequence[Path], captured: Trace, asked: Asked) -> Report | None:
    """The report of a recording with replays, given what another one captured; said aloud."""
    from pinchpoint.analysis.host.graph_replays import with_captures

    (file,) = (file for file in files if str(file) != captured.source.path)
    trace, count = with_captures(asked.trace(file), captured)
    if not count:
        return None
    note(f"{count:,} operations of graphs in {file.name} have the operators captured in the other")
    return asked.report(trace)


def _holds_captures_alone(trace: Trace) -> bool:
    """Whether graphs were made and none was replayed."""
    kinds = () if trace.api_calls is None else trace.api_calls["kind"]
    return ApiKind.GRAPH_BUILD in kinds and ApiKind.GRAPH_LAUNCH not in kinds


def _told(error: PinchpointError) -> int:
    """One of several files could not be read: what is wrong, and the next step."""
    note(f"error: {error.message}")
    if error.hint:
        note(f" next: {error.hint}")
    return error.exit_code


def _of_files(files: Sequence[Path], asked: Asked) -> Answers:
    reports, records, code = [], [], 0
    from pinchpoint.jobs.parts import is_rank_of_a_job, job_of, record_from, without_guesses

    captured: list[Trace] = []
    for file in files:
        try:
            trace = asked.trace(file)
            captured += [trace] if _holds_captures_alone(trace) else []
            reports.append(asked.report(trace))
            if is_rank_of_a_job(reports[-1]):
                records.append(record_from(trace, reports[-1]))
        except PinchpointError as error:
            code = _told(error)
    if len(reports) == 2 and len(captured) == 1:
        joined = _with_captured(files, captured[0], asked)
        if joined is not None:
            return Answers([joined], [], code)
    job = job_of(records) if len(records) == len(reports) else None
    if job is None:
        return Answers(reports, [], code)
    return Answers([without_guesses(report) for report in reports], [job], code)


@contextmanager
def archive_as_folder(place: str) -> Iterator[str]:
    """A temporary folder in place of an archive of several recordings; else the place."""
    if is_url(place) or not Path(place).is_file():
        yield place
        return
    with as_folder(Path(place)) as copy:
        try:
            yield str(copy)
        except PinchpointError as error:
            error.message = error.message.replace(str(copy), place)
            error.hint = error.hint.replace(str(copy), place)
            raise


def _said_of(found: Answers, copy: Path, place: Path) -> Answers:
    """The same, with the names of temporary copies as they are in the archive."""
    return replace(
        found,
        reports=[renamed(report, str(copy), str(place)) for report in found.reports],
        jobs=[renamed(job, str(copy), str(place)) for job in found.jobs],
    )


def renamed(document: Document, copy: str, place: str) -> Document:
    """A document in which files of a temporary folder are called as they are in the archive."""
    if copy == place:
        return document
    text = encoded(document)
    inside, named = (encoded(path)[1:-1] for path in (copy, place))
    return msgspec.json.decode(text.replace(inside, named), type=type(document))
