"""What a history says of sessions of different hours, and of what pairs measured in the same."""

import numpy as np

from pinchpoint.bench.baselines import Baseline, BesideBase, Entry, SessionMedian
from pinchpoint.bench.baselines.check import CheckItem
from pinchpoint.bench.baselines.confirmation import without_false_levels
from pinchpoint.bench.baselines.screen import contradicted, levels, why_pairs
from pinchpoint.report import terminal
from pinchpoint.report.pages.history import history_page
from pinchpoint.report.pages.result import blocks

FASTER = BesideBase(commit="aaaa", change_ratio=-0.3, ci95_ratio=(-0.35, -0.25), pairs=5)


def _session(i, value, beside=None, commit=None):
    return SessionMedian(
        session_id=str(i),
        utc=f"2026-12-01T0{i}:00",
        value=value,
        runs=3,
        commit=commit,
        beside_base=beside,
    )


def _entry(*sessions, better="lower"):
    return Entry(better=better, unit="ms", session_medians=sessions, gate="fail")


def _shown(**entries):
    baseline = Baseline(
        created_utc="2026-12-01", updated_utc="", env_key_sha256="", env={}, entries={"t|": entries}
    )
    return terminal.render(blocks(history_page(baseline)))


def test_a_faster_commit_that_was_stored_in_a_busy_hour_is_said_to_be_faster():
    """3.88 ms stand after 2.96, and the pairs said 30 % better."""
    entry = _entry(_session(1, 2.96, commit="aaaa"), _session(2, 3.88, FASTER, "bbbb"))
    base, alone = contradicted(entry, 1)
    assert (base, round(alone, 3)) == (0, 0.311)
    text = " ".join(_shown(step_time_ms=entry).split())
    assert "3.88 ms 30.0 % better" in text
    assert "by the medians 31.1 % worse than session 1; side by side with its commit" in text
    assert "25.0 to 35.0 % better (95 %, 5 pairs): believe these" in text


def test_what_the_pairs_say_as_well_is_not_contradicted():
    base = _session(1, 2.96, commit="aaaa")
    assert contradicted(_entry(base, _session(2, 2.10, FASTER, "bbbb")), 1) is None
    assert contradicted(_entry(base, _session(2, 3.88, commit="bbbb")), 1) is None  # no pairs
    unknown = _session(1, 2.96, commit="cccc")
    assert contradicted(_entry(unknown, _session(2, 3.88, FASTER, "bbbb")), 1) is None


def test_a_level_whose_pairs_deny_a_median_decides_nothing():
    """Five sessions: fewer show no spread. The last of six was stored in a busy hour."""
    steady = [_session(i, 2.96, commit="aaaa") for i in range(5)]
    busy_hour = _entry(*steady, _session(5, 3.88, FASTER, "bbbb"))
    assert why_pairs([_entry(*steady)], busy=False) == ""
    assert why_pairs([_entry(*steady)], busy=True) == "the machine is busy"
    assert why_pairs([_entry(*steady[:4])], busy=False) == "few past sessions"
    assert "busy and of quiet hours" in why_pairs([_entry(*steady), busy_hour], busy=False)
    since = Entry(
        better="lower",
        unit="ms",
        session_medians=(*busy_hour.session_medians, *(_session(i, 2.0) for i in range(6, 11))),
        segment_start="6",
    )
    assert why_pairs([since], busy=False) == ""  # a new level began after it
    assert why_pairs([], busy=True) == ""


def test_of_a_rate_more_is_better():
    entry = _entry(
        _session(1, 300.0, commit="aaaa"), _session(2, 225.0, FASTER, "bbbb"), better="higher"
    )
    assert contradicted(entry, 1) is not None
    assert contradicted(_entry(*entry.session_medians[:1], better="higher"), 0) is None


def test_a_level_that_pairs_deny_is_none():
    """Ten sessions of 10 ms, then ten of 14 in busier hours; the pairs saw no change."""
    rng = np.random.default_rng(1)
    same = BesideBase(commit="aaaa", change_ratio=0.0, ci95_ratio=(-0.01, 0.01), pairs=5)
    worse = BesideBase(commit="aaaa", change_ratio=0.4, ci95_ratio=(0.35, 0.45), pairs=5)
    for beside, expected in ((None, 1), (worse, 1), (same, 0)):
        values = [*rng.normal(10, 0.05, 10), *rng.normal(14, 0.05, 10)]
        sessions = [_session(i, v, beside, "aaaa") for i, v in enumerate(values)]
        assert len(levels(_entry(*sessions))) == expected


def test_a_session_that_reads_higher_is_no_new_level_beside_pairs_that_saw_none():
    change = {"utc": "now", "commit": None, "before": 10.0, "after": 14.0}
    item = CheckItem(
        name="step_time_ms",
        label="step",
        unit="ms",
        better="lower",
        gate="fail",
        verdict="pass",
        why="",
        value=14.0,
        level_changes=(change, change | {"utc": "2026"}),
    )
    for between, kept in ((None, 2), ((0.3, 0.5), 2), ((-0.1, 0.1), 1)):
        beside = {"base_ci95_ratio": between}
        found = without_false_levels(CheckItem(**{**_fields(item), **beside}))
        assert len(found.level_changes) == kept


def _fields(item):
    return {name: getattr(item, name) for name in item.__struct_fields__}


def test_gated_measures_come_first_and_counts_are_words():
    shown = Entry(better="lower", unit="s", gate="show", session_medians=(_session(1, 1.0),))
    text = _shown(work_s=shown, step_time_ms=_entry(_session(1, 3.0)))
    assert "1 session since 2026-12-01, 2 measures" in text
    assert text.index("step time, median") < text.index("process without imports")
