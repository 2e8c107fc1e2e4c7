"""Who holds the memory, what grows, what is wasted, and what would save it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import look, reading, show, show_json
from pinchpoint.cli.page import NO_PAGE, Page
from pinchpoint.cli.recordings._answers import shared
from pinchpoint.errors import UsageError
from pinchpoint.importers import load
from pinchpoint.report import diagnose, terminal
from pinchpoint.report.assemble.memory import Questions, memory_report
from pinchpoint.report.assemble.memory_compare import compare_memory
from pinchpoint.report.documents.memory import MemoryReport, encode_memory
from pinchpoint.report.pages.memory import comparison_page, memory_page
from pinchpoint.report.redact import redacted_trace
from pinchpoint.trace import Trace

Switch = Parameter(negative="")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_UNITS |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "B": 1}


@dataclass(frozen=True)
class Assumptions:
    """What the estimates assume.

    Parameters
    ----------
    capacity
        Memory of the device for which the largest batch is estimated, such as 80GiB.
    ranks
        Number of ranks that the sharding questions divide by.
    """

    capacity: str | None = None
    ranks: int = 8


_USUAL = Assumptions()


def command(
    file: Path,
    /,
    *,
    compare: Path | None = None,
    at: str = "peak",
    assume: Annotated[Assumptions, Parameter(name="*")] = _USUAL,
    json: Annotated[bool, Switch] = False,
    page: Page = NO_PAGE,
    verbose: Annotated[bool, Switch] = False,
) -> int:
    """Analyse a memory snapshot, or the memory events of a trace.

    The four peaks, who holds memory at a moment, what each step leaves behind, fragmentation,
    failed requests rewound to the moment they failed, and what changes would save, in bytes.

    Parameters
    ----------
    file
        A file of torch.cuda.memory._dump_snapshot, plain or gzipped, a trace recorded with
        profile_memory=True, or a run folder that holds one of them.
    compare
        A second recording, such as one taken after a fix: what changed from FILE to it.
    at
        The moment to describe: peak, oom, end, or a time after the first event such as 1.5s.
    json
        One JSON document on standard output and nothing else.
    verbose
        Also show evidence, assumptions and every holder.
    """
    questions = Questions(at=at, capacity_bytes=_bytes(assume.capacity), ranks=_ranks(assume.ranks))
    trace, report = _read(file, questions)
    report = shared(report, [file], redact=page.redact)
    if compare is not None:
        return _compare(report, compare, questions, json=json, page=page, files=(file, compare))
    if json:
        show_json(encode_memory(report))
    else:
        show(terminal.render(memory_page(report, verbose=verbose), look()))
    if page.html is not None:
        from pinchpoint.report.html_page.interactive import render

        said = shared(diagnose(trace), [file], redact=page.redact)
        drawn = redacted_trace(trace) if page.redact else trace
        page.write(render(drawn, said, found=report), (file,))
    return 0


def _read(file: Path, questions: Questions) -> tuple[Trace, MemoryReport]:
    with reading(file):
        trace = load(file)
    if trace.run is not None and trace.run.memory is not None:
        trace = trace.run.memory  # the allocator's own account says more than events of a trace
    return trace, memory_report(trace, questions)


def _compare(
    before: MemoryReport,
    other: Path,
    questions: Questions,
    *,
    json: bool,
    page: Page,
    files: Sequence[Path],
) -> int:
    _, after = _read(other, questions)
    found = shared(compare_memory(before, after), files, redact=page.redact)
    if json:
        show_json(encode_memory(found))
    else:
        show(terminal.render(comparison_page(found), look()))
    if page.html is not None:
        from pinchpoint.report.html import render

        page.write(render(comparison_page(found)), files)
    return 0


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    unit = next((u for u in _UNITS if text.endswith(u)), None)
    try:
        count = float(text.removesuffix(unit or "")) * _UNITS[unit or "GiB"]
    except ValueError:
        raise UsageError(f"--capacity {text}: not a size", hint="--capacity 80GiB") from None
    if not 0 < count < 2**60:
        raise UsageError(f"--capacity {text}: not a size of a device", hint="--capacity 80GiB")
    return int(count)


def _ranks(ranks: int) -> int:
    if ranks < 1:
        raise UsageError("--ranks: at least 1", hint="--ranks 8")
    return ranks
