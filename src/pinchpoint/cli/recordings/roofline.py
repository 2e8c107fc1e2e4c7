"""Which work is near its roof, which is not, and how much of the peak a step uses."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace

from pinchpoint.analysis.limits.roofs import with_ceilings
from pinchpoint.cli.output import look, reading, show, show_json, write_file, wrote
from pinchpoint.cli.page import Force, Redact
from pinchpoint.cli.recordings._answers import shared
from pinchpoint.hardware import ceilings as store
from pinchpoint.importers import load
from pinchpoint.report import terminal
from pinchpoint.report.documents.order import by_field
from pinchpoint.report.documents.roofline import PointInfo, encode_roofline, roofline_document
from pinchpoint.report.pages.roofline import roofline_page
from pinchpoint.report.svg import signed
from pinchpoint.report.svg.roofline import roofline_svg
from pinchpoint.trace import Trace

Switch = Parameter(negative="")


@Parameter(name="*")
@dataclass(frozen=True)
class Plot:
    """The plot to write.

    Parameters
    ----------
    svg
        Also write the plot to this file.
    force
        Replace a file of another kind that is there. A recording is never replaced.
    """

    svg: Path | None = None
    force: Force = False


@Parameter(name="*")
@dataclass(frozen=True)
class Shown:
    """Which points are shown, in which order, and what is left out.

    Parameters
    ----------
    sort
        Order of the points: a field of theirs, such as won, flops or roof_ratio; default: time.
    verbose
        Show all points.
    redact
        For passing it on: no folders, arguments or settings.
    """

    sort: str | None = None
    verbose: Annotated[bool, Switch] = False
    redact: Redact = False


_NO_PLOT = Plot()
_AS_IT_IS = Shown()


def command(
    file: Path,
    /,
    *,
    counters: Path | None = None,
    ceilings: Path | None = None,
    data_sheet: Annotated[bool, Switch] = False,
    json: Annotated[bool, Switch] = False,
    plot: Plot = _NO_PLOT,
    shown: Shown = _AS_IT_IS,
) -> int:
    """Place operators or profiled kernels on the roofline; MFU, HFU, tokens a second.

    Parameters
    ----------
    file
        A recording with shapes (record_shapes=True), or a report of Nsight Compute.
    counters
        A report of Nsight Compute of the same program, to be joined with the recording.
    ceilings
        Ceilings measured by pinchpoint ceilings; default: those stored for this device, if any.
    data_sheet
        Hold the work against the data sheet even where ceilings were measured.
    json
        One JSON document on standard output and nothing else.
    """
    trace = measured_against(joined(file, counters), ceilings, data_sheet=data_sheet)
    document = roofline_document(trace)
    if shown.sort is not None:
        document = replace(document, points=by_field(document.points, shown.sort, PointInfo))
    document = shared(document, [file], redact=shown.redact)
    if json:
        show_json(encode_roofline(document))
    else:
        show(
            terminal.render(roofline_page(document, sort=shown.sort, verbose=shown.verbose), look())
        )
    if plot.svg is not None:
        inputs = [each for each in (file, counters, ceilings) if each is not None]
        write_file(plot.svg, signed(roofline_svg(document)), inputs=inputs, force=plot.force)
        wrote(plot.svg)
    return 0


def joined(file: Path, counters: Path | None) -> Trace:
    """A recording, with the counters of another one if it is named."""
    with reading(file) as progress:
        trace = load(file, progress)
    if counters is None:
        return trace
    from pinchpoint.analysis.limits.counters import with_counters

    return with_counters(trace, load(counters))


def measured_against(trace: Trace, ceilings: Path | None, *, data_sheet: bool) -> Trace:
    """The trace with the ceilings that its work is held against."""
    if data_sheet:
        return trace
    if ceilings is not None:
        return with_ceilings(trace, store.load(ceilings))
    names = (device.name for device in trace.devices)
    found = next((c for name in names if (c := store.stored(name)) is not None), None)
    return with_ceilings(trace, found)
