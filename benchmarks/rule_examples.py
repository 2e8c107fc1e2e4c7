"""Has every rule a true and a false example among the tests?

    python benchmarks/rule_examples.py [PYTEST ARGUMENT …]

Runs the tests of the rules (by default :data:`TESTS`) and notes each answer of each
rule: a finding, none, or that it cannot judge. A rule without a test in which it finds its cause,
or without one in which it does not, is named, and the exit code is 1.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import wraps
from importlib import import_module
from typing import Any

import pytest

TESTS = ("tests/diagnosis/rules", "tests/diagnosis/test_job.py")


class Noted:
    """A pytest plugin: what each rule answered, by its id."""

    def __init__(self) -> None:
        self.answers: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.registry: Any = None

    def pytest_configure(self) -> None:
        """Put a note around every rule, before a test can import it."""
        # Here, because pytest wants to be the first to import what it tests.
        self.registry = import_module("pinchpoint.diagnosis.registry")
        for id_ in self.registry.rules():
            module = import_module(self.registry._paths()[id_])
            for name in ("check", "check_job"):
                if hasattr(module, name):
                    setattr(module, name, self._noting(id_, getattr(module, name)))
        self.registry.rules.cache_clear()

    def _noting(self, id_: str, check: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(check)
        def noted(*given: Any, **named: Any) -> Iterator[Any]:
            found = 0
            try:
                for one in check(*given, **named):
                    found += 1
                    self.answers[id_]["found"] += found == 1
                    yield one
            except Exception:
                self.answers[id_]["not checked"] += 1
                raise
            self.answers[id_]["clear"] += not found

        return noted


def main(arguments: list[str]) -> int:
    """Run the tests, print one line for each rule that lacks an example."""
    noted = Noted()
    failed = pytest.main(["-q", "-p", "no:cacheprovider", *(arguments or TESTS)], [noted])
    said = {id_: noted.answers[id_] for id_ in noted.registry.rule_ids()}
    untrue = [id_ for id_, of in said.items() if not of["found"]]
    unfalse = [id_ for id_, of in said.items() if not of["clear"] and not of["not checked"]]
    print(f"\n{len(said)} rules; with a true example {len(said) - len(untrue)},", end=" ")
    print(f"with a false one {len(said) - len(unfalse)}")
    print(*(f"no true example: {id_}" for id_ in untrue), sep="\n")
    print(*(f"no false example: {id_}" for id_ in unfalse), sep="\n")
    return 1 if failed or untrue or unfalse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
