"""Diagnose a real H100 recording that comes with Pinchpoint."""

from importlib.resources import as_file, files
from pathlib import Path

from msgspec.structs import replace

from pinchpoint.cli.diagnose import present, write_page
from pinchpoint.cli.output import note
from pinchpoint.importers import load
from pinchpoint.report import Report, diagnose

RECORDING = "item_sync.json.gz"


def command(*, html: Path = Path("report.html")) -> int:
    """Diagnose the recording of a model that reads one number back in every layer.

    Parameters
    ----------
    html
        Where the page is written.
    """
    report = demo_report()
    present([report], "terminal")
    write_page(html, report)
    note("now yours: pinchpoint diagnose FILE (a torch.profiler trace, .json or .json.gz)")
    return 0


def demo_report() -> Report:
    """The report on the embedded recording."""
    with as_file(files("pinchpoint") / "data" / RECORDING) as path:
        report = diagnose(load(path))
    return replace(report, source=replace(report.source, path=RECORDING))
