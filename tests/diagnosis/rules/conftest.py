"""What tests of rules share: ask one rule about one trace."""

import pytest

from pinchpoint.diagnosis.engine import ask, diagnose, rule_modules


@pytest.fixture
def outcome():
    """The answer of a rule, by id, about a trace; a crash is an error here."""

    def of(id_, trace):
        answer = ask(id_, rule_modules()[id_], trace)
        assert answer.answer != "crashed", answer.why
        return answer

    return of


@pytest.fixture
def ranked():
    """Ids of the findings that a whole diagnosis keeps, best first."""
    return lambda trace: [r.id for r in diagnose(trace).found]
