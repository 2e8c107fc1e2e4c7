"""One HTML file to look at and pass on: findings, timeline, tables, flame graphs, roofline."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import note, write_file
from pinchpoint.cli.progress import reading
from pinchpoint.importers import load
from pinchpoint.report import diagnose

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
    text = page.render(trace, diagnose(trace))
    write_file(output, text)
    note(f"wrote {output} ({len(text.encode()) / 1e6:.1f} MB)")
    return 0
