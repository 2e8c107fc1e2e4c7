"""A ``gpu_bench`` fixture for pytest: timings with budgets as asserts.

    def test_attention(gpu_bench):
        gpu_bench(attention, q, k, v, budget="120us")

It is ``pp.time`` behind the option names of pytest-benchmark; where that plugin is installed too,
the same options are called ``--gpu-bench-…``. A comparison with a stored file is a screen: it fails
only where the intervals do not touch, and a change that matters is proven by ``bench ab``.
"""

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pinchpoint.regex import regex

if TYPE_CHECKING:
    from pinchpoint.bench.micro.timing import Timing

SCHEMA = "bench.pytest/1"
_SCALES = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_BUDGET = regex(r"^\s*([0-9.]+)\s*(ns|us|µs|ms|s)\s*$")
_OPTIONS: dict[str, dict[str, Any]] = {
    "json": {"metavar": "FILE", "help": "write all timings to this file"},
    "compare": {"metavar": "FILE", "help": "compare with a file written by json"},
    "compare-fail": {"metavar": "EXPR", "help": "fail if worse by more, such as median:5%%"},
    "disable": {"action": "store_true", "help": "call functions once, without timing"},
    "skip": {"action": "store_true", "help": "skip tests that use gpu_bench"},
    "only": {"action": "store_true", "help": "run only tests that use gpu_bench"},
    "max-time": {"type": float, "default": 1.0, "help": "most seconds a mode"},
}
_store = pytest.StashKey["_Session"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, under the names of pytest-benchmark if these are free."""
    group = parser.getgroup("gpu_bench")
    # Plugins load in no fixed order, so what is installed decides, not what is taken.
    prefix = "gpu-bench" if find_spec("pytest_benchmark") else "benchmark"
    for name, how in _OPTIONS.items():
        dest = f"gpu_bench_{name.replace('-', '_')}"
        group.addoption(f"--{prefix}-{name}", dest=dest, **how)


def pytest_configure(config: pytest.Config) -> None:
    """Start an empty session; a comparison that cannot be read ends it at once."""
    config.addinivalue_line("markers", "gpu_bench: uses the gpu_bench fixture")
    config.stash[_store] = _Session(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Apply only and skip."""
    only, skip = config.getoption("gpu_bench_only"), config.getoption("gpu_bench_skip")
    for item in items:
        timed = "gpu_bench" in getattr(item, "fixturenames", ())
        if only and not timed:
            item.add_marker(pytest.mark.skip(reason="no benchmark"))
        if skip and timed:
            item.add_marker(pytest.mark.skip(reason="benchmarks are skipped"))


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """One line a timing."""
    session = config.stash[_store]
    if not session.timings:
        return
    terminalreporter.section("gpu_bench")
    for line in session.lines():
        terminalreporter.write_line(line)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the file."""
    session.config.stash[_store].write()


@pytest.fixture
def gpu_bench(request: pytest.FixtureRequest) -> "GpuBench":
    """Times a function and keeps the result for the summary and the file."""
    return GpuBench(request.config.stash[_store], request.node.nodeid)


class GpuBench:
    """The fixture: call it with a function and its arguments."""

    def __init__(self, session: "_Session", test: str) -> None:
        self._session, self._test = session, test
        self.timing: Timing | None = None

    def __call__(
        self,
        fn: Callable[..., Any],
        *args: Any,
        budget: str | None = None,
        backend: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Time ``fn(*args, **kwargs)`` and return its result.

        ``budget`` (``120us``): the test fails if the median is surely over it, that is if the lower
        end of its 95 % interval is.
        """
        result = fn(*args, **kwargs)
        if self._session.disabled:
            return result
        self.timing = self._session.time(fn, args, kwargs, backend)
        if self.timing.invalid_reasons:
            pytest.skip(f"measurement invalid: {'; '.join(self.timing.invalid_reasons)}")
        self._session.keep(self._test, self.timing)
        if budget is not None:
            self._check_budget(budget)
        self._session.check_change(self._test, self.timing)
        return result

    def pedantic(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        **more: Any,
    ) -> Any:
        """As in pytest-benchmark; rounds, iterations and warm-up are found here, not given."""
        wanted = {k: more[k] for k in ("budget", "backend") if k in more}
        return self(target, *args, **wanted, **(kwargs or {}))

    def _check_budget(self, budget: str) -> None:
        match = _BUDGET.match(budget)
        if match is None:
            raise pytest.UsageError(f"budget {budget!r}: expected a time such as 120us")
        limit_ns = float(match[1]) * _SCALES[match[2]]
        assert self.timing is not None
        interval = self.timing.batched.ci95_ns
        least_ns = interval[0] if interval else self.timing.median_ns
        if least_ns > limit_ns:
            pytest.fail(f"over the budget of {budget}: {self.timing}", pytrace=False)


class _Session:
    """All timings of a test session."""

    def __init__(self, config: pytest.Config) -> None:
        self.timings: dict[str, Timing] = {}
        self.disabled = bool(config.getoption("gpu_bench_disable"))
        self._seconds = float(config.getoption("gpu_bench_max_time"))
        self._file = config.getoption("gpu_bench_json")
        self._before = _read(config.getoption("gpu_bench_compare"))
        self._limit = _limit(config.getoption("gpu_bench_compare_fail"))

    def time(self, fn: Callable[..., Any], args: Any, kwargs: Any, backend: str | None) -> "Timing":
        from pinchpoint.bench.micro.time_function import time_function
        from pinchpoint.bench.micro.timing import StoppingRule

        rule = StoppingRule(most_seconds=self._seconds)
        return time_function(
            lambda *_: fn(*args, **kwargs),
            *args,
            *kwargs.values(),
            name=getattr(fn, "__name__", "function"),
            backend=backend,
            rule=rule,
        )

    def keep(self, test: str, timing: "Timing") -> None:
        """One timing a test; a second one of the same test gets a number."""
        name, number = test, 1
        while name in self.timings:
            number += 1
            name = f"{test} ({number})"
        self.timings[name] = timing

    def check_change(self, test: str, timing: "Timing") -> None:
        """Fail if the whole interval lies above the stored one, and the change over the limit."""
        before = self._before.get(test)
        interval = timing.batched.ci95_ns
        if before is None or self._limit is None or interval is None:
            return
        change = timing.median_ns / before["median_ns"] - 1
        old_high = (before["median_ci95_ns"] or (0, before["median_ns"]))[1]
        if change > self._limit and interval[0] > old_high:
            from pinchpoint.bench.words import in_words

            said = f"median {in_words(change)} against the stored one"
            pytest.fail(f"{said} (a screen; prove it with bench ab)", pytrace=False)

    def lines(self) -> list[str]:
        from pinchpoint.bench.micro.timing import nanoseconds
        from pinchpoint.bench.words import in_words

        found = []
        for test, timing in self.timings.items():
            line = f"{test}: {nanoseconds(timing.median_ns)}"
            before = self._before.get(test)
            if before:
                change = timing.median_ns / before["median_ns"] - 1
                line += f" ({in_words(change)} against before)"
                if self._limit is not None and timing.batched.ci95_ns is None:
                    line += ", too few rounds to judge it: allow more time"
            found.append(line + "".join(f" [{r.id}]" for r in timing.remarks))
        return found

    def write(self) -> None:
        if not self._file:
            return
        import msgspec

        from pinchpoint.bench.folders import utc_now, write_json
        from pinchpoint.bench.micro.document import document
        from pinchpoint.monitor.environment import environment

        write_json(
            Path(self._file),
            {
                "schema": SCHEMA,
                "created_utc": utc_now(),
                "environment": environment(),
                "benchmarks": {
                    test: msgspec.to_builtins(document(timing))
                    for test, timing in self.timings.items()
                },
            },
        )


def _read(name: str | None) -> dict[str, dict[str, Any]]:
    """The batched modes of a stored file, by test."""
    if not name:
        return {}
    import json

    try:
        stored = json.loads(Path(name).read_bytes())
        return {t: d["modes"]["batched"] for t, d in stored["benchmarks"].items()}
    except OSError as error:
        raise pytest.UsageError(f"{name}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise pytest.UsageError(
            f"{name}: not a file of gpu_bench; --benchmark-json writes one"
        ) from None


def _limit(text: str | None) -> float | None:
    if not text:
        return None
    match = re.fullmatch(r"(?:median:)?([0-9.]+)%", text)
    if match is None:
        raise pytest.UsageError(f"compare-fail {text!r}: expected median:5%")
    return float(match[1]) / 100
