"""A document of a size: still a document, and the findings go last."""

import msgspec
import pytest

from pinchpoint.errors import UsageError
from pinchpoint.report import decode
from pinchpoint.report.documents.fit import fitted
from pinchpoint.report.documents.run import RunInfo, RunPlaceInfo
from report_sample import full_report, hostile_report

WHOLE = len(fitted(full_report(), 10**9))


@pytest.mark.parametrize("most", range(5250, WHOLE + 500, 250))
def test_it_fits_and_is_a_report_with_all_findings(most):
    text = fitted(full_report(), most)
    assert len(text) <= most
    report = decode(text.encode())
    assert [f.id for f in report.findings] == [f.id for f in full_report().findings]
    assert report.verdict == full_report().verdict


def test_what_is_cut_from_a_table_is_counted():
    report = decode(fitted(full_report(), WHOLE - 10).encode())
    table = report.tables["kernels"]
    assert len(table.rows) + table.rows_left_out == 2 + 17
    assert len(table.rows) < 2


def test_what_is_cut_is_counted_and_findings_keep_what_confirms_them():
    whole = full_report()
    report = decode(fitted(whole, 5_600).encode())
    assert report.left_out["not_checked"] == len(whole.not_checked) - len(report.not_checked) > 0
    assert [f.confirm for f in report.findings] == [f.confirm for f in whole.findings]
    assert decode(fitted(whole, 10**9).encode()).left_out == {}


def test_too_small_says_how_much_it_takes():
    with pytest.raises(UsageError, match="the least that can be said takes") as caught:
        fitted(full_report(), 100)
    least = int(caught.value.hint.removeprefix("--max-chars "))
    assert len(fitted(full_report(), least)) == least


def test_names_of_a_million_characters_fit():
    assert len(fitted(hostile_report(), 20_000)) <= 20_000


def test_places_of_the_whole_run_go_before_findings():
    """A run folder has some thousand characters of them, which no budget left out before."""
    places = tuple(RunPlaceInfo(ns=9, range_ns=(8, 10), looks=3, inside="f" * 90) for _ in range(9))
    run = RunInfo(total_ns=99, looks=30, every_ns=3, places=places, crew_places=places)
    whole = msgspec.structs.replace(full_report(), run=run)
    sizes = range(_least(whole), WHOLE + 5000, 50)
    known = (decode(fitted(whole, size).encode()) for size in sizes)
    report = next(one for one in known if one.run is not None)
    assert report.left_out["places_of_the_run"] == 18 - len(report.run.places) > 0
    assert "run" not in report.left_out
    assert len(report.findings) == len(whole.findings)


def test_a_small_budget_has_the_first_finding_and_counts_the_others():
    run = RunInfo(total_ns=99, looks=30, every_ns=3, places=(), crew_places=())
    many = full_report().findings[:1] * 7
    whole = msgspec.structs.replace(full_report(), run=run, findings=many)
    report = decode(fitted(whole, _least(whole)).encode())
    assert (report.findings[0].fix, report.verdict) == (many[0].fix, whole.verdict)
    assert (report.left_out["findings"], report.left_out["run"]) == (6, 1)
    assert "places_of_the_run" not in report.left_out


def test_small_parts_of_the_step_go_last():
    large = full_report().breakdown[0]
    small = msgspec.structs.replace(large, ns_per_step=1)
    whole = msgspec.structs.replace(full_report(), breakdown=(large, *[small] * 7))
    report = decode(fitted(whole, _least(whole)).encode())
    assert (report.breakdown, report.left_out["breakdown"]) == ((large,), 7)


def test_the_five_largest_parts_of_the_step_stay():
    part = full_report().breakdown[0]
    parts = tuple(msgspec.structs.replace(part, ns_per_step=n) for n in (1, 9, 2, 8, 7, 6, 5))
    report = decode(fitted(_with(breakdown=parts), _least(_with(breakdown=parts))).encode())
    assert [p.ns_per_step for p in report.breakdown] == [9, 8, 7, 6, 5]


def _with(**fields):
    return msgspec.structs.replace(full_report(), **fields)


def _least(report):
    with pytest.raises(UsageError) as caught:
        fitted(report, 100)
    return int(caught.value.hint.removeprefix("--max-chars "))
