"""What a finding tells one to run must exist: knobs of ``pinchpoint try`` are those it has."""

import re
from pathlib import Path

import pytest

import pinchpoint.diagnosis.rules
from pinchpoint.bench.experiments.knobs import KNOBS
from pinchpoint.diagnosis.registry import rules

BUILT_IN = {knob.name for knob in KNOBS}
NAMED = [
    (path.stem, knob)
    for path in sorted(Path(pinchpoint.diagnosis.rules.__path__[0]).rglob("*.py"))
    for knob in re.findall(r"--knob (\w+)", path.read_text())
]
DECLARED = [(id_, knob) for id_, known in rules().items() for knob in known.rule.knobs]


@pytest.mark.parametrize(("rule", "knob"), NAMED + DECLARED)
def test_a_knob_that_a_rule_names_is_built_in(rule, knob):
    assert knob in BUILT_IN


def test_a_knob_that_confirms_a_cause_is_declared_for_it():
    assert {(rule.replace("_", "-"), knob) for rule, knob in NAMED} <= set(DECLARED)
