"""What changed between two profiles, two benchmark results or two load tests."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import reading
from pinchpoint.cli.page import Redact
from pinchpoint.cli.programs.bench.options import Showing, present
from pinchpoint.cli.recordings._answers import shared
from pinchpoint.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinchpoint.compare.profiles import ProfileComparison
    from pinchpoint.compare.results import ResultComparison
    from pinchpoint.report.pages.result import ResultPage

    Comparison = ResultComparison | ProfileComparison


def command(
    a: Path,
    b: Path,
    /,
    *,
    redact: Redact = False,
    fail: Annotated[list[str] | None, Parameter(negative="")] = None,
    showing: Showing | None = None,
) -> int:
    """Compare A with B: two profiles of any known format, two results of bench run or bench serve,
    or two load tests of vLLM, SGLang or TensorRT-LLM.

    Of profiles: what appeared, went or got slower, matched by its place in the step; the changes
    add up to the change of the step. Of load tests: percentiles and rates with their intervals, a
    load at a time where a file has several.

    With --force results of machines or loads that differ are compared too; the answer says so.

    Exit code: 0; 2 if a file cannot be read; 3 if the two are not comparable. With --fail: 1 if a
    measure is worse for certain and by more, 4 if chance may be all of it.

    Parameters
    ----------
    a
        The one before.
    b
        The one after.
    redact
        For passing it on: no folders, arguments or settings.
    fail
        NAME:THRESHOLD, such as step_time_ms:5% or ttft_p99_ms:20%; B fails if it is worse by more.
        May be given again.
    """
    from pinchpoint.compare.gates import exit_code

    showing = showing or Showing()
    showing.chosen()
    kinds = [_kind(path) for path in (a, b)]
    if kinds[0] != kinds[1]:
        raise UsageError(f"{a} and {b} are not of one kind", hint="two profiles, or two results")
    found = _ANSWERS[kinds[0]](a, b, tuple(fail or ()), showing.force)
    said = shared(found, (a, b), redact=redact)
    present(said, _page(said), showing, inputs=(a, b))
    return exit_code(found.gates)


def _kind(path: Path) -> str:
    from pinchpoint.importers import load_test
    from pinchpoint.importers.open import format_of

    if _is_result(path):
        return "results"
    of_load = path.is_file() and format_of(path) == load_test.FORMAT
    return "load tests" if of_load else "profiles"


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


def _results(a: Path, b: Path, fail: tuple[str, ...], force: bool) -> "ResultComparison":
    from pinchpoint.bench.result import read_result
    from pinchpoint.compare.results import compare_results, gated

    return gated(compare_results(read_result(a), read_result(b), force=force), fail)


def _load_tests(a: Path, b: Path, fail: tuple[str, ...], force: bool) -> "ResultComparison":
    from pinchpoint.compare.load_tests import compare_load_tests
    from pinchpoint.compare.results import gated
    from pinchpoint.importers.load_test import FORMAT, load_tests
    from pinchpoint.importers.open import guarded

    with guarded(a, FORMAT):
        before = load_tests(a)
    with guarded(b, FORMAT):
        after = load_tests(b)
    return gated(compare_load_tests(before, after, (a.name, b.name), force=force), fail)


def _profiles(a: Path, b: Path, fail: tuple[str, ...], _: bool) -> "ProfileComparison":
    from pinchpoint.compare.profiles import gated
    from pinchpoint.importers import load
    from pinchpoint.report.assemble.comparison import comparison

    traces = []
    for path in (a, b):
        with reading(path) as progress:
            traces.append(load(path, progress))
    return gated(comparison(*traces), fail)


_ANSWERS: "dict[str, Callable[[Path, Path, tuple[str, ...], bool], Comparison]]" = {
    "results": _results,
    "load tests": _load_tests,
    "profiles": _profiles,
}


def _page(found: "Comparison") -> "ResultPage":
    from pinchpoint.compare.results import ResultComparison
    from pinchpoint.report.pages import compare as compare_page

    if isinstance(found, ResultComparison):
        return compare_page.results_page(found)
    return compare_page.profiles_page(found)
