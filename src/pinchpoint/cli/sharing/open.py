"""Look at a recording in Perfetto, with findings, idle causes and counters as tracks."""

import gzip
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import note, reading, show
from pinchpoint.errors import UsageError
from pinchpoint.export.chrome import chrome
from pinchpoint.export.excerpt import MOST_EVENTS, excerpt, parse_steps
from pinchpoint.export.handoff import Handoff
from pinchpoint.importers import load
from pinchpoint.report import diagnose

Switch = Parameter(negative="")
WAIT_S = 120.0


def command(
    file: Path,
    /,
    *,
    steps: str | None = None,
    max_events: int = MOST_EVENTS,
    no_browser: Annotated[bool, Switch] = False,
    wait: float = WAIT_S,
) -> int:
    """Open a recording in the viewer at ui.perfetto.dev, which reads it in your browser.

    The trace goes from this machine to your browser and nowhere else, and is served once. On
    another machine: ssh -L 9001:localhost:9001 MACHINE, and --no-browser there.

    Parameters
    ----------
    file
        A recording of any known format, or a run folder.
    steps
        Only these steps, such as 3 or 3-5; default: all, or those around the findings that fit.
    max_events
        The most events to hand over.
    no_browser
        Print the link and open nothing.
    wait
        Seconds to wait for the browser to fetch it.
    """
    chosen = parse_steps(steps)
    if max_events < 1 or not 0 < wait < 1e6:
        raise UsageError("--max-events and --wait: more than 0", hint="pinchpoint open --help")
    with reading(file) as progress:
        trace = load(file, progress)
    report = diagnose(trace)
    part = excerpt(trace, report, chosen, max_events)
    content = gzip.compress(b"".join(chrome(trace, report, part)), 1, mtime=0)
    with Handoff(content, f"{file.resolve().name.partition('.')[0]}.json.gz") as handoff:
        if part.said:
            note(f"showing {part.said}")
        show(f"{handoff.link}\n")
        note("allow it if the browser asks whether ui.perfetto.dev may reach this device")
        if not no_browser:
            _browse(handoff.link)
        if not handoff.wait(wait):
            raise UsageError(
                f"nothing fetched the trace within {wait:g} s",
                hint="open the link in a browser on this machine, or tunnel: "
                "ssh -L 9001:localhost:9001",
            )
    note(f"handed over ({len(content) / 1e6:.1f} MB)")
    return 0


def _browse(link: str) -> None:
    import webbrowser

    try:
        opened = webbrowser.open(link)
    except webbrowser.Error:
        opened = False
    if not opened:
        note("no browser here: open the link yourself")
