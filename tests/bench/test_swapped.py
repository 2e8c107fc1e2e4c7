"""Programs that meet at their first step and exchange their CPUs, with programs of a second."""

import json
import os
import sys
from functools import partial

import pytest

from pinchpoint.bench.ab.at_once import both_at_once
from pinchpoint.bench.run import Arm, Place, RunOptions, measure_run
from pinchpoint.bench.run.swapped import Swap, halves
from pinchpoint.inside import meeting

STEPS = """
import json, os, sys, time
import pinchpoint
seen, begun = set(), time.monotonic()
time.sleep({late})
pinchpoint.step()
first = time.monotonic()
while time.monotonic() < first + 0.4:
    seen.add(tuple(sorted(os.sched_getaffinity(0))))
    pinchpoint.step()
print(json.dumps([first, sorted(seen)]))
"""
two_cpus = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two CPUs that may be given",
)


def _both(tmp_path, first, second):
    swap = Swap()
    measured = [
        partial(
            measure_run,
            Arm(name, (sys.executable, "-c", code)),
            RunOptions("test", at_once=True),
            Place(tmp_path / name, 0, 0, swap.side(tmp_path / name)),
        )
        for name, code in (("A", first), ("B", second))
    ]
    runs = both_at_once(*measured)
    logs = [(tmp_path / name / "stdout.log").read_text() for name in "AB"]
    return runs, [json.loads(log) if log else None for log in logs]


@two_cpus
def test_both_begin_together_and_have_each_half_of_the_cpus(tmp_path):
    runs, said = _both(tmp_path, STEPS.format(late=0), STEPS.format(late=0.3))
    assert [run.swapped for run in runs] == [True, True]
    ours = [sorted(half) for half in halves()]
    for _, seen in said:
        assert sorted(seen) == sorted(ours)
    assert abs(said[0][0] - said[1][0]) < 0.25  # the second begins 0.3 s later


@two_cpus
def test_a_program_without_steps_keeps_nobody_waiting_and_all_its_cpus(tmp_path):
    code = "print('[]')"
    runs, said = _both(tmp_path, STEPS.format(late=0), code)
    assert [run.status for run in runs] == ["ok", "ok"]
    assert [run.swapped for run in runs] == [False, False]
    assert said[0][1] == [sorted(os.sched_getaffinity(0))]


@two_cpus
def test_who_gives_threads_their_cpus_keeps_them(tmp_path):
    pinned = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})" + STEPS.format(
        late=0
    )
    runs, said = _both(tmp_path, STEPS.format(late=0), pinned)
    assert [run.swapped for run in runs] == [False, False]
    assert said[1][1] == [[min(os.sched_getaffinity(0))]]


def test_nobody_is_waited_for_where_nobody_comes(tmp_path, monkeypatch):
    monkeypatch.delenv(meeting.MEETING_VARIABLE, raising=False)
    assert meeting.meeting() is meeting._nobody
    monkeypatch.setenv(meeting.MEETING_VARIABLE, str(tmp_path / "none"))
    assert meeting.meeting() is meeting._nobody
    monkeypatch.setattr(meeting, "_LONGEST_WAIT_S", 0.0)
    (tmp_path / "there").write_bytes(bytes(meeting.LENGTH))
    monkeypatch.setenv(meeting.MEETING_VARIABLE, str(tmp_path / "there"))
    wait = meeting.meeting()
    wait()
    assert (tmp_path / "there").read_bytes() == b"\x01\x00"
