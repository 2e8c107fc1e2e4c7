"""The one page that ``report``, every ``--html``, ``serve`` and ``pp.report`` show of a recording,
a run or its ranks."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.report import Report
from pinchpoint.report.redact import redacted_trace
from pinchpoint.run_folder.layout import MEMORY
from pinchpoint.trace import Trace

if TYPE_CHECKING:
    from pinchpoint.report.documents.ranks import RanksReport

Note = Callable[[str], None]


def full_page(
    file: Path,
    trace: Trace | None,
    report: Report | None,
    job: "RanksReport | None",
    *,
    redact: bool = False,
    home: str | None = None,
    note: Note | None = None,
) -> str:
    """The page as text; without a trace that of the job alone.

    ``redact`` says that the rest is redacted, and so the snapshot must be; ``home`` is an address
    to go back to, ``note`` is told what had to be left out.
    """
    if trace is None or report is None:
        from pinchpoint.report.html import render
        from pinchpoint.report.pages.ranks import ranks_page

        assert job is not None
        return render(ranks_page(job, verbose=True, full=True), home=home)
    from pinchpoint.report.html_page import interactive

    snapshot = snapshot_beside(file, trace, note)
    if redact and snapshot is not None:
        snapshot = redacted_trace(snapshot)
    return interactive.render(trace, report, snapshot, job, home=home)


def job_in(folder: Path) -> "RanksReport | None":
    """What the ranks of a folder say together; None where it does not hold several."""
    from pinchpoint.importers.ranks.files import several_ranks
    from pinchpoint.jobs.run import diagnose_ranks

    return diagnose_ranks([folder]) if several_ranks(folder) else None


def snapshot_beside(folder: Path, trace: Trace, note: Note | None = None) -> Trace | None:
    """The last snapshot of memory that the trace's rank of a run took; None without one."""
    taken = sorted((folder / MEMORY).glob("*.pickle*")) if folder.is_dir() else []
    own = [p for p in taken if p.name.startswith(f"rank{trace.rank or 0:05d}")]
    for path in reversed(own or taken):
        try:
            return load(path)
        except UnreadableFile as error:  # the rest of the run is worth a report all the same
            if note is not None:
                note(f"left out: {error}")
    return None
