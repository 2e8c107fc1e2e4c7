import json

import pytest

# Inner sessions forget what they import, and numpy cannot be loaded twice: load it out here.
import pinchpoint.bench.micro.document
import pinchpoint.bench.micro.time_function
import pinchpoint.monitor.environment  # noqa: F401

pytest_plugins = ["pytester"]

PLUGIN = ("-p", "pinchpoint.bench.pytest_plugin", "-p", "no:cacheprovider")

TEST = """
def test_sum(gpu_bench):
    assert gpu_bench(sum, range(5_000)) == 12_497_500

def test_other():
    pass
"""


@pytest.fixture(autouse=True)
def _no_other_plugins(monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def quick(pytester):
    """Runs pytest with the plugin, with little time a timing."""

    def run(*options, code=TEST):
        pytester.makeconftest(
            "from pinchpoint.bench.micro import sampling\nsampling.LEAST_WARMUP_S = 0.0"
        )
        pytester.makepyfile(code)
        return pytester.runpytest_inprocess(*PLUGIN, "--benchmark-max-time", "0.02", *options)

    return run


def _valid(result):
    return result.parseoutcomes().get("passed", 0) + result.parseoutcomes().get("skipped", 0)


def test_a_timing_in_the_summary_and_the_file(quick, pytester):
    result = quick("--benchmark-json", "out.json")
    assert _valid(result) == 2
    document = json.loads((pytester.path / "out.json").read_bytes())
    assert document["schema"] == "bench.pytest/1"
    for name, timing in document["benchmarks"].items():
        assert name.endswith("::test_sum")
        assert timing["modes"]["batched"]["median_ns"] > 0


def test_a_budget_that_is_surely_missed_fails(quick):
    code = "def test_b(gpu_bench):\n    gpu_bench(sum, range(50), budget='{}')"
    over = quick(code=code.format("1ns")).parseoutcomes()
    assert over.get("failed", 0) + over.get("skipped", 0) == 1
    under = quick(code=code.format("10s")).parseoutcomes()
    assert under.get("passed", 0) + under.get("skipped", 0) == 1


def test_disable_calls_once(quick):
    code = """
def test_once(gpu_bench):
    calls = []
    gpu_bench.pedantic(calls.append, args=(1,), rounds=5)
    assert calls == [1]
"""
    quick("--benchmark-disable", code=code).assert_outcomes(passed=1)


def test_only_and_skip(quick):
    assert quick("--benchmark-skip").parseoutcomes()["skipped"] >= 1
    assert quick("--benchmark-only", "--benchmark-disable").parseoutcomes() == {
        "passed": 1,
        "skipped": 1,
    }


def _stored(pytester, median):
    mode = {"median_ns": median, "median_ci95_ns": [median, median]}
    name = "test_quick.py::test_sum"
    stored = {"benchmarks": {name: {"modes": {"batched": mode}}}}
    (pytester.path / "old.json").write_text(json.dumps(stored))


@pytest.mark.parametrize(("median", "outcome"), [(1e-3, "failed"), (1e15, "passed")])
def test_compare_fail(pytester, quick, median, outcome):
    _stored(pytester, median)
    options = ("--benchmark-compare", "old.json", "--benchmark-compare-fail", "median:5%")
    pytester.makepyfile(test_quick=TEST)
    result = pytester.runpytest_inprocess(
        *PLUGIN, "--benchmark-max-time", "0.5", *options, "test_quick.py"
    )
    found = result.parseoutcomes()
    few = "too few rounds to judge it" in result.stdout.str()  # on a full machine
    assert found.get("skipped", 0) or found.get(outcome, 0) >= 1 or few


@pytest.mark.parametrize(
    "options",
    [("--benchmark-compare", "none.json"), ("--benchmark-compare-fail", "much")],
)
def test_options_that_mean_nothing(quick, options):
    assert quick(*options).ret == pytest.ExitCode.USAGE_ERROR


def test_beside_pytest_benchmark_the_options_have_other_names(pytester):
    pytester.makepyfile(pytest_benchmark="")
    pytester.syspathinsert()
    test = pytester.makepyfile(TEST)
    result = pytester.runpytest_inprocess(
        str(test), *PLUGIN, "--gpu-bench-json", "out.json", "--gpu-bench-disable"
    )
    result.assert_outcomes(passed=2)
