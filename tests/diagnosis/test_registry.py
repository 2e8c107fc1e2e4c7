"""A rule is one file: what it declares is all that commands need to ask it."""

import sys
from pathlib import Path

import pytest

import pinchpoint.diagnosis.rules as home
from builders import TraceBuilder
from pinchpoint.analysis.limits.counter_issues import IssueKind
from pinchpoint.analysis.ranks.job import reduce
from pinchpoint.analysis.ranks.summarise import summarise
from pinchpoint.bench.experiments.knobs import proposed
from pinchpoint.diagnosis import registry
from pinchpoint.diagnosis.job import diagnose_job
from pinchpoint.diagnosis.rank_finding import RankFinding
from pinchpoint.diagnosis.registry import page, rule_ids, rules
from pinchpoint.diagnosis.rule import About
from pinchpoint.report.assemble.findings import findings
from rank_traces import MS, Job

RULE = '''"""A cause that was added.

## What it looks for
Nothing.
"""

from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import RUN_FOLDER
from pinchpoint.diagnosis.rule import About, Rule

RULE = Rule(needs=(), record=RUN_FOLDER, {declared})


def check(trace):
    yield Found(summary="It is there", evidence=(), {found})
'''


@pytest.fixture
def added(tmp_path, monkeypatch):
    """Puts a rule ``NAME`` with some declarations beside the others."""

    def add(name, declared, found=""):
        family = tmp_path / f"added_{name}"
        family.mkdir()
        (family / "__init__.py").touch()
        (family / f"{name}.py").write_text(RULE.format(declared=declared, found=found))
        monkeypatch.setattr(home, "__path__", [*home.__path__, str(tmp_path)])
        _forget()

    yield add
    monkeypatch.undo()
    _forget()


def _forget():
    for name in [n for n in sys.modules if n.startswith(f"{home.__name__}.added_")]:
        del sys.modules[name]
    registry._paths.cache_clear()
    registry.rules.cache_clear()


def test_a_file_in_a_family_is_a_rule(added):
    added("new_cause", 'parent="x"')
    assert "new-cause" in rule_ids()
    assert page("new-cause").startswith("A cause that was added.")
    assert rules()["new-cause"].rule.parent == "x"


def test_what_rules_share_is_no_rule():
    shared = [path.stem for path in Path(home.__path__[0]).rglob("_[a-z]*.py")]
    assert shared
    assert not any(name.strip("_").replace("_", "-") in rule_ids() for name in shared)


def test_a_new_memory_rule_is_asked_by_the_memory_command(added):
    added("new_memory_cause", "about=About.MEMORY", "saving_bytes=7")
    said = findings(TraceBuilder().trace())
    assert [(f.id, f.saving_bytes) for f in said.findings] == [("new-memory-cause", 7)]


def test_a_new_rule_about_time_is_not(added):
    added("new_time_cause", "about=About.TIME")
    assert findings(TraceBuilder().trace()).findings == ()


@pytest.mark.parametrize(
    ("about", "saved_ms", "gain_ms"),
    [
        ("COMMUNICATION", {0: 3}, [1]),  # it waits 2 ms for the other one: the transfer is 1 ms
        ("COMMUNICATION", {1: 2}, [2]),
        ("COMMUNICATION", {0: 3, 1: 2}, [1]),
        ("TIME", {0: 3}, []),  # the other rank holds up this one as before
    ],
)
def test_a_new_rule_about_communication_counts_as_one(added, about, saved_ms, gain_ms):
    added("new_cause_of_ranks", f"about=About.{about}")
    job = Job(ranks=2, work_ms=lambda rank, step: (10.0, 12.0)[rank])
    summaries = [summarise(trace) for trace in job.traces()]
    shown = [RankFinding("new-cause-of-ranks", rank, ms * MS) for rank, ms in saved_ms.items()]
    said = diagnose_job(reduce(lambda: iter(summaries)), shown)
    gains = [f.saving_ns for f in said.found if f.id == "new-cause-of-ranks"]
    assert gains == [ms * MS for ms in gain_ms]


def test_a_new_cause_names_the_knobs_that_may_fix_it(added):
    added("new_cause_with_knobs", 'knobs=("tf32", "gc")')
    settings = proposed(rules()["new-cause-with-knobs"].rule.knobs)
    assert [s.text for s in settings] == ["tf32=true", "gc=off"]


def test_every_kind_of_issue_has_a_rule_about_kernels():
    about = {id_ for id_, known in rules().items() if known.rule.about is About.KERNEL}
    assert about == {str(kind) for kind in IssueKind}
