"""Measure what this machine can really compute and move."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import look, must_be_writable, note, show, show_json, wrote
from pinchpoint.cli.page import Force
from pinchpoint.errors import PinchpointError, UsageError
from pinchpoint.hardware import ceilings as store
from pinchpoint.json_text import indented
from pinchpoint.report import terminal
from pinchpoint.report.pages.roofline import ceilings_page

Switch = Parameter(negative="")


@dataclass(frozen=True)
class Keeping:
    """Where figures go.

    Parameters
    ----------
    stored
        Show what was measured before instead of measuring; without the device, the newest.
    output
        Also write the document to this file.
    no_store
        Do not keep the result for later analyses.
    force
        Replace a file of another kind that is there. A recording is never replaced.
    """

    stored: Annotated[bool, Switch] = False
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None
    no_store: Annotated[bool, Switch] = False
    force: Force = False


_USUAL = Keeping()
_BEGINNING = f'{{"schema":"{store.SCHEMA}",'.encode()


def command(
    *,
    device: str = "cuda:0",
    dtypes: str | None = None,
    sustained: float = 8.0,
    keep: Annotated[Keeping, Parameter(name="*")] = _USUAL,
    json: Annotated[bool, Switch] = False,
    verbose: Annotated[bool, Switch] = False,
) -> int:
    """Measure products by number format, memory, copies and launches; keep the result.

    Takes about half a minute on an otherwise idle device and needs PyTorch. Later analyses of
    recordings of the same device prefer these figures to the data sheet, and say so. Figures
    above what the device can do are refused, and so are those of a machine that others use; what
    was kept before stays where there is no new figure.

    Parameters
    ----------
    device
        cuda:N or cpu.
    dtypes
        Number formats to multiply in, such as bf16,tf32; default: all that the device has.
    sustained
        Seconds of the sustained product in the first format; 0 leaves it out.
    json
        One JSON document on standard output and nothing else.
    verbose
        Also show shapes, spreads and what held the clocks down.
    """
    if sustained < 0:
        raise UsageError("--sustained is a number of seconds", hint="0 leaves it out")
    if keep.output is not None:
        must_be_writable(keep.output, _BEGINNING, force=keep.force)
    found = _stored(device) if keep.stored else _measured(device, dtypes, sustained)
    if not keep.stored and not keep.no_store:
        found = store.with_older(found)
        if found.measurements:
            note(f"kept in {store.save(found)}{_older(found)}")
        else:
            note("nothing is kept: every figure was refused")
    if keep.output is not None:
        wrote(store.save(found, keep.output))
    if json:
        show_json(indented(found))
    else:
        show(terminal.render(ceilings_page(found, verbose=verbose), look()))
    return 0


def _older(found: store.Ceilings) -> str:
    """Which figures this measurement does not have and an earlier one has."""
    older = [m for m in found.measurements if m.measured_at is not None]
    days = ", ".join(sorted({str(m.measured_at)[:10] for m in older}))
    names = (" ".join(filter(None, (m.what, m.dtype, m.mode))) for m in older)
    return f"; of {days} there stay: {', '.join(names)}" if older else ""


def _measured(device: str, dtypes: str | None, sustained: float) -> store.Ceilings:
    from pinchpoint.hardware.measure import measure

    wanted = None if dtypes is None else tuple(t.strip() for t in dtypes.split(",") if t.strip())
    return measure(device, dtypes=wanted, sustained_s=sustained, progress=note)


def _stored(device: str) -> store.Ceilings:
    from pinchpoint.hardware.measure import name_of

    try:
        name = name_of(device)
    except PinchpointError:  # no device, or no torch: what is kept can be shown all the same
        return _newest(device)
    found = store.stored(name)
    if found is None:
        raise UsageError(
            f"nothing was measured for {name} yet", hint="measure it: pinchpoint ceilings"
        )
    return found


def _newest(device: str) -> store.Ceilings:
    found = store.newest()
    if found is None:
        raise UsageError(
            f"{device} is not here, and no ceilings are kept in {store.folder()}",
            hint="measure on a machine that has it: pinchpoint ceilings",
        )
    note(f"{device} is not here: the newest ceilings that are kept, of {found.device}")
    return found
