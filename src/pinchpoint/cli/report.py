"""One HTML file to look at and pass on: findings, timeline, tables, flame graphs, roofline."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import note, write_file
from pinchpoint.cli.progress import reading
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.monitor.run_folder import MEMORY
from pinchpoint.report import diagnose
from pinchpoint.trace import Trace

_OUTPUT = Path("report.html")


def command(
    file: Path, /, *, output: Annotated[Path, Parameter(name=("--output", "-o"))] = _OUTPUT
) -> int:
    """Write the whole report of one recording as one HTML file that needs no network.

    Parameters
    ----------
    file
        A recording of any known format, or a run folder.
    output
        The file to write.
    """
    from pinchpoint.report import page

    with reading(file) as progress:
        trace = load(file, progress)
        snapshot = _snapshot(file, trace)
    text = page.render(trace, diagnose(trace), snapshot)
    write_file(output, text)
    note(f"wrote {output} ({len(text.encode()) / 1e6:.1f} MB)")
    return 0


def _snapshot(folder: Path, trace: Trace) -> Trace | None:
    """The last snapshot of memory that the trace's rank of a run took; None without one."""
    taken = sorted((folder / MEMORY).glob("*.pickle*")) if folder.is_dir() else []
    own = [p for p in taken if p.name.startswith(f"rank{trace.rank or 0:05d}")]
    for path in reversed(own or taken):
        try:
            return load(path)
        except UnreadableFile as error:  # the rest of the run is worth a report all the same
            note(f"left out: {error}")
    return None
