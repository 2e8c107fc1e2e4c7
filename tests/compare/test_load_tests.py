"""Two load tests: percentiles and rates with intervals, gates, loads that differ."""

import json

import pytest

import pinchpoint
from pinchpoint.cli import main
from pinchpoint.compare.load_tests import compare_load_tests
from pinchpoint.errors import NotComparable
from pinchpoint.importers.load_test import load_tests

REQUESTS = 1000


def result(folder, name, *, slower=1.0, kept=True, **changed):
    """Times to the first token are spread evenly from 50 to 150 ms, times ``slower``."""
    ms = [slower * (50 + 100 * i / (REQUESTS - 1)) for i in range(REQUESTS)]
    figures = {"mean": 100, "median": 100, "std": 28.9, "p90": 140, "p95": 145, "p99": 149}
    run = {
        "model_id": "m",
        "request_rate": 10.0,
        "completed": REQUESTS,
        "failed": 0,
        "request_throughput": 10.0,
        **{f"{of}_ttft_ms": slower * value for of, value in figures.items()},
        **({"ttfts": [x / 1e3 for x in ms]} if kept else {}),
        **changed,
    }
    path = folder / name
    path.write_text(json.dumps(run))
    return path


def compared(a, b, **options):
    found = compare_load_tests(load_tests(a), load_tests(b), (a.name, b.name), **options)
    return found, {change.name: change for change in found.changes}


def test_order_statistics_of_the_requests(tmp_path):
    a, b = result(tmp_path, "a.json"), result(tmp_path, "b.json", slower=1.5)
    found, by_name = compared(a, b)
    p95 = by_name["ttft_p95_ms"]
    # The 95 % interval of 1,000 values has ranks 950 - 13 or 14 and 950 + 13 or 14, 0.1 ms each.
    assert p95.a_range == pytest.approx((143.6, 146.4), abs=0.2)
    assert (p95.verdict, p95.how) == ("worse", "requests")
    assert p95.change_ratio == pytest.approx(0.5)
    assert by_name["ttft_p99_ms"].verdict == "worse"
    assert by_name["requests_per_s"].verdict == "same"
    assert not any("no requests" in warning for warning in found.warnings)


def test_sums_alone_have_wider_intervals_and_open_sides(tmp_path):
    a, b = (result(tmp_path, name, kept=False) for name in ("a.json", "b.json"))
    found, by_name = compared(a, b)
    half = 1.96 * 28.9 / REQUESTS**0.5
    assert by_name["ttft_mean_ms"].a_range == pytest.approx((100 - half, 100 + half))
    low, high = by_name["ttft_p95_ms"].a_range  # 0.95 ± 0.0135, on the lines between percentiles
    assert (low, high) == pytest.approx((143.65, 146.35), abs=0.05)
    assert by_name["ttft_p99_ms"].a_range[1] is None
    assert by_name["ttft_p99_ms"].verdict == "cannot tell"
    assert any("no requests" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("slower", "gate", "code", "outcome"),
    [
        (1.0, "ttft_p99_ms:5%", 0, "pass"),
        (1.5, "ttft_p99_ms:5%", 1, "fail"),
        (1.5, "ttft_p99_ms:60%", 0, "pass"),
        (1.5, "ttft_p99_ms:40ms", 1, "fail"),
        (1.04, "ttft_median_ms:3%", 4, "inconclusive"),
    ],
)
def test_gates(tmp_path, capsys, slower, gate, code, outcome):
    a, b = result(tmp_path, "a.json"), result(tmp_path, "b.json", slower=slower)
    assert main(["compare", str(a), str(b), "--fail", gate, "--json"]) == code
    [gated] = json.loads(capsys.readouterr().out)["gates"]
    assert gated["outcome"] == outcome
    assert main(["compare", str(a), str(b), "--fail", gate]) == code
    assert f"{outcome}: A: a.json" in capsys.readouterr().out


def test_an_unknown_measure_and_a_profile_are_said(tmp_path, capsys):
    a = result(tmp_path, "a.json")
    assert main(["compare", str(a), str(a), "--fail", "e2e_p99_ms:5%"]) == 2
    assert "ttft_p99_ms" in capsys.readouterr().err
    profile = tmp_path / "trace.json"
    profile.write_text('{"traceEvents": []}')
    assert main(["compare", str(a), str(profile)]) == 2
    with pytest.raises(NotComparable, match="no step to compare"):
        pinchpoint.compare(a, a)


def test_a_faster_server_that_fails_requests_does_not_pass(tmp_path, capsys):
    a = result(tmp_path, "a.json")
    b = result(tmp_path, "b.json", slower=0.5, failed=500, completed=500)
    found, by_name = compared(a, b)
    assert by_name["ttft_p95_ms"].verdict == "cannot tell"
    assert any("B failed 50 %" in warning for warning in found.warnings)
    assert main(["compare", str(a), str(b), "--fail", "ttft_p95_ms:5%"]) == 4


def test_numbers_that_are_none_are_left_out(tmp_path):
    a, b = result(tmp_path, "a.json"), result(tmp_path, "b.json", request_throughput=10**400)
    assert "requests_per_s" in compared(a, a)[1]
    assert "requests_per_s" not in compared(a, b)[1]
    odd = result(tmp_path, "c.json", request_throughput=float("nan"))
    assert "requests_per_s" not in compared(a, odd)[1]


def test_from_nothing_to_something_is_not_the_same(tmp_path, capsys):
    a, b = result(tmp_path, "a.json", median_ttft_ms=0.0), result(tmp_path, "b.json")
    assert main(["compare", str(a), str(b), "--fail", "ttft_median_ms:5%", "--json"]) == 4
    (gate,) = json.loads(capsys.readouterr().out)["gates"]
    assert (gate["change_ratio"], gate["why"]) == (None, "one of the two is 0")


def test_another_load_is_not_comparable(tmp_path):
    a, b = result(tmp_path, "a.json"), result(tmp_path, "b.json", request_rate=20.0)
    with pytest.raises(NotComparable, match=r"request_rate 10.0 in A, 20.0 in B"):
        compared(a, b)
    assert compared(a, b, force=True)[0].forced


def test_a_sweep_is_compared_load_by_load_and_repeats_with_their_range(tmp_path):
    runs = {}
    for rate in (5.0, 10.0, 20.0):
        path = result(
            tmp_path, "one.json", kept=False, request_rate=rate, median_ttft_ms=100 + rate
        )
        runs[rate] = path.read_text()
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    a.write_text("\n".join((runs[5.0], runs[10.0], runs[10.0].replace("110.0", "130.0"))))
    b.write_text("\n".join((runs[20.0], runs[10.0])))
    found, by_name = compared(a, b)
    assert [w for w in found.warnings if w.startswith("only")] == [
        "only in A: request_rate 5.0",
        "only in B: request_rate 20.0",
    ]
    median = by_name["ttft_median_ms"]
    assert (median.a_median, median.b_median, median.a_runs) == (120.0, 110.0, 2)
    assert median.a_range[1] > 130.0
