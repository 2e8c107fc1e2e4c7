"""What pays only after other fixes says so, and stands behind them."""

import os
from pathlib import Path

import pytest

import pinchpoint as pp
from pinchpoint.diagnosis.finding import Finding
from pinchpoint.report.words.report import given


@pytest.mark.corpus
@pytest.mark.skipif("PINCHPOINT_CORPUS" not in os.environ, reason="PINCHPOINT_CORPUS is not set")
def test_findings_that_need_others_come_after_all_they_need():
    path = Path(os.environ["PINCHPOINT_CORPUS"]) / "own" / "traces" / "resnet50_train.json.gz"
    findings = pp.diagnose(pp.load(path)).findings
    assert any(finding.given for finding in findings)
    seen: set[str] = set()
    for finding in findings:
        assert set(finding.given) <= seen
        seen.add(finding.id)


def test_the_other_fixes_are_named():
    finding = Finding(id="c", summary="", evidence=(), given=("a", "b"))
    assert given(finding).startswith("a and b are fixed")
    assert given(Finding(id="c", summary="", evidence=())) is None
