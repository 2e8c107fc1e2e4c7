"""What a finding tells one to run must exist: knobs of ``pinchpoint try`` are those it has."""

import re
from pathlib import Path

import pytest

import pinchpoint.diagnosis.rules
from pinchpoint.bench.experiments.knobs import KNOBS

NAMED = [
    (path.stem, knob)
    for path in sorted(Path(pinchpoint.diagnosis.rules.__path__[0]).glob("*.py"))
    for knob in re.findall(r"--knob (\w+)", path.read_text())
]


@pytest.mark.parametrize(("rule", "knob"), NAMED)
def test_a_knob_that_a_rule_names_is_built_in(rule, knob):
    assert knob in {k.name for k in KNOBS}
