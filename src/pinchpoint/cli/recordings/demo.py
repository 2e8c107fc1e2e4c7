"""Diagnose a real H100 recording that comes with Pinchpoint."""

import shutil
import sys
from importlib.resources import as_file, files
from pathlib import Path

from msgspec.structs import replace

from pinchpoint.cli.output import note
from pinchpoint.cli.page import Force, Page
from pinchpoint.cli.recordings.diagnose import present
from pinchpoint.importers import load
from pinchpoint.report import Report, diagnose
from pinchpoint.trace import Trace

RECORDING = "item_sync.json.gz"


def command(*, html: Path = Path("report.html"), force: Force = False) -> int:
    """Diagnose the recording of a model that reads one number back in every layer.

    Parameters
    ----------
    html
        Where the page is written.
    force
        Replace a file of another kind that is there.
    """
    from pinchpoint.jobs.full_page import full_page

    trace, report = demo_recording()
    present([report], "terminal")
    Page(html, force).write(full_page(Path(RECORDING), trace, report, None), ())
    typed = as_typed()
    note(f"now yours: {typed} diagnose FILE (a torch.profiler trace, .json or .json.gz)")
    if typed != "pinchpoint":
        note(f"in this shell pinchpoint is {typed}, until you say: {activation(typed)}")
    return 0


def as_typed() -> str:
    """How this pinchpoint is called from the current folder, without an activated environment."""
    own = Path(sys.executable).parent / "pinchpoint"
    found = shutil.which("pinchpoint")
    if (found is not None and Path(found) == own) or not own.exists():
        return "pinchpoint"
    here = Path.cwd()
    return str(own.relative_to(here) if own.is_relative_to(here) else own)


def activation(typed: str) -> str:
    """What makes a shell know it by its name."""
    return f"source {Path(typed).parent / 'activate'}"


def demo_recording() -> tuple[Trace, Report]:
    """The embedded recording, and the report on it under its own name."""
    with as_file(files("pinchpoint") / "data" / RECORDING) as path:
        trace = load(path)
        report = diagnose(trace)
    return trace, replace(report, source=replace(report.source, path=RECORDING))
