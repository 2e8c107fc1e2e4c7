"""Write a recording in the format of another tool: Perfetto, speedscope, SARIF, Parquet, CSV."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from pinchpoint import __version__
from pinchpoint.api import diagnose
from pinchpoint.cli.output import may_write, reading, write_file, wrote
from pinchpoint.cli.page import Force, Redact
from pinchpoint.cli.recordings._answers import folders_of
from pinchpoint.errors import UsageError
from pinchpoint.export import chrome, database, sarif, spans, stacks, tabular
from pinchpoint.export.excerpt import WHOLE, excerpt, parse_steps
from pinchpoint.export.trackers import log_to
from pinchpoint.importers import load
from pinchpoint.replacing import check_free_folder
from pinchpoint.report import Report
from pinchpoint.report.redact import redacted, redacted_trace
from pinchpoint.trace import Trace

Format = Literal[
    "chrome",
    "perfetto",
    "speedscope",
    "collapsed",
    "csv",
    "parquet",
    "sarif",
    "tensorboard",
    "otlp",
]
Switch = Parameter(negative="")


def command(
    file: Path,
    /,
    *,
    to: Format,
    output: Annotated[Path, Parameter(name=("--output", "-o"))],
    device: Annotated[bool, Switch] = False,
    steps: str | None = None,
    force: Force = False,
    redact: Redact = False,
) -> int:
    """Export a recording, its tables or its findings.

    Parameters
    ----------
    file
        A recording of any known format, or a run folder.
    to
        chrome or perfetto: all events, steps and findings, in Chrome's format.
        speedscope, collapsed: time by stack.
        csv: the tables of the report. parquet: the tables of the recording. sarif: the findings.
        tensorboard: the numbers of the report. otlp: steps and phases as OpenTelemetry spans.
    output
        The file to write; for csv, parquet and tensorboard the folder.
    device
        Of collapsed stacks: device time, not host time.
    steps
        Of chrome: only these steps, such as 3 or 3-5.
    force
        Replace a file of another kind that is there. A recording is never replaced.
    redact
        For passing it on: no folders, arguments or settings.
    """
    if to == "perfetto":  # reads Chrome's format
        to = "chrome"
    chosen = parse_steps(steps)
    if chosen and to != "chrome":
        raise UsageError(f"--steps has no meaning for {to}", hint="--to chrome")
    with reading(file) as progress:
        trace = load(file, progress)
    shared = _Shared(trace, folders_of([file]) if redact else None)
    if to in ("csv", "parquet", "tensorboard"):
        check_free_folder(output)
    if to == "tensorboard":
        log_to(shared.report, to, folder=output)
        wrote(output)
        return 0
    if to in ("csv", "parquet"):
        for table in _write_tables(shared, to, output, inputs=(file,), force=force):
            wrote(table)
        return 0
    text = _chrome(shared, chosen) if to == "chrome" else _text(shared, to, device)
    write_file(output, text, inputs=(file,), force=force)
    wrote(output)
    return 0


@dataclass(frozen=True)
class _Shared:
    """A recording and what is said of it, as it is passed on."""

    whole: Trace
    private: tuple[str, ...] | None  # folders to leave out; None: everything stays

    @property
    def trace(self) -> Trace:
        """The recording."""
        return self.whole if self.private is None else redacted_trace(self.whole)

    @property
    def report(self) -> Report:
        """Its diagnosis, of the whole of it."""
        report = diagnose(self.whole)
        return report if self.private is None else redacted(report, *self.private)


def _chrome(shared: _Shared, chosen: tuple[int, int] | None) -> str:
    report = shared.report
    part = WHOLE if chosen is None else excerpt(shared.whole, report, chosen, sys.maxsize)
    return b"".join(chrome.chrome(shared.trace, report, part)).decode()


def _text(shared: _Shared, to: Format, device: bool) -> str:
    if to == "collapsed":
        return stacks.collapsed(shared.trace, device=device)
    if to == "speedscope":
        return stacks.speedscope(shared.trace).decode()
    if to == "otlp":
        return spans.otlp_json(shared.trace).decode()
    return sarif.sarif(shared.report, __version__).decode()


def _write_tables(
    shared: _Shared, to: Format, folder: Path, *, inputs: tuple[Path, ...], force: bool
) -> Iterator[Path]:
    """Write one file a table; each as it is done."""
    if to == "parquet":
        database.duckdb_module()  # what is missing is said before a folder is made
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be made a folder ({error.strerror})", hint="name another one"
        ) from None
    if to == "parquet":
        trace = shared.trace
        for name in database.tables_of(trace):
            may_write(folder / f"{name}.parquet", b"PAR1\0", inputs=inputs, force=force)
        yield from database.write_parquet(trace, folder)
        return
    for id_, text in tabular.csv_tables(shared.report).items():
        write_file(folder / f"{id_}.csv", text, inputs=inputs, force=force)
        yield folder / f"{id_}.csv"
