"""What changed between two profiles, or two benchmark results."""

from pathlib import Path
from typing import TYPE_CHECKING

from pinchpoint.cli.output import reading
from pinchpoint.cli.page import Redact
from pinchpoint.cli.programs.bench.options import Showing, present
from pinchpoint.cli.recordings._answers import shared
from pinchpoint.errors import UsageError

if TYPE_CHECKING:
    import msgspec

    from pinchpoint.report.pages.result import ResultPage


def command(
    a: Path,
    b: Path,
    /,
    *,
    redact: Redact = False,
    showing: Showing | None = None,
) -> int:
    """Compare A with B: two profiles of any known format, or two results of bench run.

    Of profiles: what appeared, went or got slower, matched by its place in the step; the changes
    add up to the change of the step.

    With --force results of machines that differ are compared too; the answer says so.

    Exit code: 0; 2 if a file cannot be read; 3 if the two are not comparable.

    Parameters
    ----------
    a
        The one before.
    b
        The one after.
    redact
        For passing it on: no folders, arguments or settings.
    """
    showing = showing or Showing()
    showing.chosen()
    kinds = [_is_result(path) for path in (a, b)]
    if kinds[0] != kinds[1]:
        raise UsageError(f"{a} and {b} are not of one kind", hint="two profiles, or two results")
    if all(kinds):
        found, page = _compared_results(a, b, showing.force, redact)
    else:
        found, page = _compared_profiles(a, b, redact)
    present(found, page, showing, inputs=(a, b))
    return 0


def _is_result(path: Path) -> bool:
    """A folder of bench run, or its result.json; everything else is left to the importers."""
    from pinchpoint.bench.folders import SESSION_FILE
    from pinchpoint.bench.result import SCHEMA

    if path.is_dir():
        return (path / SESSION_FILE).is_file()
    if path.suffix != ".json" or not path.is_file():
        return False
    with path.open("rb") as file:
        return SCHEMA.encode() in file.read(200)


def _compared_results(
    a: Path, b: Path, force: bool, redact: bool
) -> "tuple[msgspec.Struct, ResultPage]":
    from pinchpoint.bench.result import read_result
    from pinchpoint.compare.results import compare_results
    from pinchpoint.report.pages import compare as compare_page

    found = compare_results(read_result(a), read_result(b), force=force)
    found = shared(found, (a, b), redact=redact)
    return found, compare_page.results_page(found)


def _compared_profiles(a: Path, b: Path, redact: bool) -> "tuple[msgspec.Struct, ResultPage]":
    from pinchpoint.importers import load
    from pinchpoint.report.assemble.comparison import comparison
    from pinchpoint.report.pages import compare as compare_page

    traces = []
    for path in (a, b):
        with reading(path) as progress:
            traces.append(load(path, progress))
    found = shared(comparison(*traces), (a, b), redact=redact)
    return found, compare_page.profiles_page(found)
