"""No prediction of any rule lies below the work that its fix leaves, alone or with others.

And none has to be lifted there: a rule whose replay falls below has dropped what remains.
"""

import os
from pathlib import Path

import pytest

import pinchpoint as pp
from pinchpoint.analysis.mean.what_if import what_if_mean
from pinchpoint.diagnosis.kinds import diagnose, diagnosed_kinds
from pinchpoint.diagnosis.registry import rules

HERE = Path(__file__).parents[1] / "data"
OWN = sorted([*HERE.glob("labelled/*.json.gz"), *HERE.glob("kineto/*.json.gz")])
CORPUS = Path(os.environ.get("PINCHPOINT_CORPUS", "/nonexistent"))
LARGEST_BYTES = 40_000_000  # larger files take minutes
FOLDERS = ("labelled", "h200", "own", "public")
OTHERS = sorted(
    path
    for folder in FOLDERS
    for path in (CORPUS / folder / "traces").glob("*.json.gz")
    if path.stat().st_size <= LARGEST_BYTES
)
LIFTED_RATIO = 0.01  # of the step without the fix: what rounding and scaling may come to


def questions(diagnosis):
    """Every rule's changes alone, each finding after those before it, and all rules together."""
    everything, before = [], []
    for outcome in diagnosis.outcomes:
        periodic = rules()[outcome.id].rule.periodic
        for finding in outcome.findings:
            everything += finding.changes
            yield outcome.id, list(finding.changes), periodic
    for ranked in diagnosis.found:
        before += ranked.finding.changes
        yield f"up to {ranked.id}", list(before), False
    yield "all rules", everything, False


def check(path):
    trace = pp.load(path)
    diagnosis = diagnose(trace)
    for name, changes, every_step in questions(diagnosis):
        asked = (what_if_mean, pp.what_if) if name == "all rules" else (what_if_mean,)
        for ask in asked if changes else ():
            found = ask(trace, changes, every_step=every_step)
            if found is None:
                continue
            assert found.bound_ns <= found.range_ns[0] <= found.step_ns <= found.range_ns[1], name
            assert found.raw_ns >= found.step_ns - LIFTED_RATIO * found.base_ns, name
    said = (diagnosis, *(of.diagnosis for of in diagnosed_kinds(trace)))
    predictions = [r.predicted for d in said for r in d.found if r.predicted is not None]
    for found in predictions + ([diagnosis.together] if diagnosis.together else []):
        assert found.bound_ns <= found.range_ns[0] <= found.step_ns


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_in_recordings_that_come_along(path):
    check(path)


@pytest.mark.corpus
@pytest.mark.parametrize("path", OTHERS, ids=lambda path: f"{path.parts[-3]}/{path.name}")
def test_in_all_recordings_at_hand(path):
    check(path)
