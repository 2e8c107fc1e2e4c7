"""What tests of rules share: ask one rule about one trace."""

import os
from pathlib import Path

import pytest

import pinchpoint as pp
from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.diagnosis.registry import ask, rules


@pytest.fixture
def outcome():
    """The answer of a rule, by id, about a trace; a crash is an error here."""

    def of(id_, trace):
        answer = ask(rules()[id_], trace)
        assert answer.answer != "crashed", answer.why
        return answer

    return of


@pytest.fixture
def ranked():
    """Ids of the findings that a whole diagnosis keeps, best first."""
    return lambda trace: [r.id for r in diagnose(trace).found]


@pytest.fixture
def labelled():
    """Ids of the findings on a labelled recording, best first, and the predicted step of each."""
    corpus = os.environ.get("PINCHPOINT_CORPUS")
    if not corpus:
        pytest.skip("PINCHPOINT_CORPUS is not set")

    def found(name):
        trace = pp.load(Path(corpus) / "labelled" / "traces" / f"{name}.json.gz")
        said = diagnose(trace).found
        return {r.id: r.predicted.step_ns / 1e6 if r.predicted else None for r in said}

    return found


@pytest.fixture
def gain():
    """Predicted nanoseconds a step of the finding that a whole diagnosis puts first."""

    def of(trace, cause):
        found = diagnose(trace).found
        assert [r.id for r in found] == [cause]
        return found[0].saving_ns

    return of


@pytest.fixture
def predicted():
    """Predicted step, in nanoseconds, of the finding that a whole diagnosis puts first."""

    def of(trace, cause):
        first = diagnose(trace).found[0]
        assert first.id == cause
        return first.predicted.step_ns

    return of
