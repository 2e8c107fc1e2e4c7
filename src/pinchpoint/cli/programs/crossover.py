"""From which size on the GPU is faster than the CPU, by operation."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pinchpoint.cli.output import look, must_be_writable, note, show, show_json, write_file, wrote
from pinchpoint.cli.page import Force
from pinchpoint.cli.programs.bench.options import Switch
from pinchpoint.errors import UsageError

if TYPE_CHECKING:
    from pinchpoint.bench.crossover.measure import Operation


def command(
    *operations: str,
    dtype: Literal["float32", "float16", "bfloat16"] = "float32",
    most: int | None = None,
    json: Annotated[bool, Switch] = False,
    svg: Path | None = None,
    html: Path | None = None,
    force: Force = False,
) -> int:
    """Measure operations over their sizes, with and without transfers, and find the crossing.

    pinchpoint crossover matmul add --html crossover.html

    Without a GPU the CPU is measured alone, and the result says so.

    Parameters
    ----------
    operations
        Which ones; default: all.
    dtype
        Type of the inputs.
    most
        Largest size, to be quick.
    json
        One JSON document on standard output.
    svg
        Write the plots to this file.
    html
        Write the page to this file.
    force
        Replace a file of another kind that is there. A recording is never replaced.
    """
    from pinchpoint.bench.crossover.measure import crossover, this_machine
    from pinchpoint.bench.measurement import disturbances, measuring
    from pinchpoint.report import terminal
    from pinchpoint.report.pages import crossover as crossover_page
    from pinchpoint.report.pages.result import blocks

    for path, beginning in ((svg, b"<svg"), (html, b"<!doctype")):
        if path:
            must_be_writable(path, beginning, force=force)
    chosen = _chosen(operations, most)
    machine = this_machine()
    if machine.gpu is None:
        note(f"no GPU: {machine.no_gpu}; only the CPU is measured")
    busy = disturbances()
    with measuring() as others:
        result = crossover(chosen, dtype, machine=machine, notice=note, warnings=(*busy, *others))
    if json:
        from pinchpoint.bench.metrics import encode

        show_json(encode(result))
    else:
        show(terminal.render(blocks(crossover_page.page(result)), look()))
    for path, text in ((svg, crossover_page.svg), (html, crossover_page.html)):
        if path:
            write_file(path, text(result), force=force)
            wrote(path)
    return 0


def _chosen(names: tuple[str, ...], most: int | None) -> "list[Operation]":
    from dataclasses import replace

    from pinchpoint.bench.crossover.measure import OPERATIONS

    known = {o.name: o for o in OPERATIONS}
    unknown = [n for n in names if n not in known]
    if unknown:
        raise UsageError(f"no operation {unknown[0]!r}", hint=f"one of: {', '.join(known)}")
    chosen = [known[n] for n in names] or list(OPERATIONS)
    if most is None:
        return chosen
    if most < max(o.least for o in chosen):
        raise UsageError(f"--most {most} is below the least size", hint="--most 4096")
    return [replace(o, most=min(o.most, most)) for o in chosen]
