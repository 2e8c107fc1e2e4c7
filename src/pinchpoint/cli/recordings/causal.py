"""What a step would be without each of its pieces, or with it at the machine's limit."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from pinchpoint.cli.output import look, show, show_json
from pinchpoint.cli.recordings.roofline import joined, measured_against
from pinchpoint.report import terminal
from pinchpoint.report.documents.causal import causal_document, encode_causal
from pinchpoint.report.pages.causal import causal_page

Switch = Parameter(negative="")
Cuts = Literal[
    "operator", "kernel", "line", "function", "module", "phase", "copy", "collective", "wait"
]


def command(
    file: Path,
    /,
    *,
    by: Cuts | None = None,
    ceilings: Path | None = None,
    json: Annotated[bool, Switch] = False,
    verbose: Annotated[bool, Switch] = False,
) -> int:
    """What the step would be if a piece cost nothing, or ran at the machine's limit.

    Parameters
    ----------
    file
        A recording, or a run folder, with host and device activity.
    by
        One way to cut the step: operator, kernel, line, function, module, phase, copy, collective
        or wait. Default: all of them.
    ceilings
        Ceilings measured by pinchpoint ceilings; default: those stored for this device, if any.
    json
        One JSON document on standard output and nothing else.
    verbose
        Show all pieces.
    """
    trace = measured_against(joined(file, None), ceilings, data_sheet=False)
    document = causal_document(trace, by)
    if json:
        show_json(encode_causal(document))
    else:
        show(terminal.render(causal_page(document, verbose=verbose), look()))
    return 0
