"""A gate once showed the first line that a commit changed in place of the one that costs."""

import json
import subprocess
import sys

import pytest

from pinchpoint.bench.ab.changed_code import ChangedCode, Hunk
from pinchpoint.bench.ab.costly_lines import Timed, asked, costly_line, grown_parts, ranges_of
from pinchpoint.bench.run.lines import LinesSeen, Share, read_lines
from pinchpoint.inside import LINES_VARIABLE, recording_environment

OLD = """
def loss(model, x):
    out = model(x)
    return out.mean()
"""
NEW = """
def loss(model, x):
    scale = 1.0
    out = model(
        x, scale
    )
    extra = norm(out)
    return out.mean() + extra
"""
CODE = ChangedCode("a.py", "loss", 3, 6, "scale = 1.0", (Hunk((3, 4, 5, 6, 7, 8), (3, 4)),))
TEXTS = {"a.py": OLD}, {"a.py": NEW}


def _side(now, error=0.003, step_ratio=1.0, **shares):
    """``shares``: of the statements that are timed, in their order."""
    wanted = asked((CODE,), TEXTS[now], now=bool(now))
    share = {("a.py", int(n[1:])): Share(s, error) for n, s in shares.items()}
    return Timed(wanted, LinesSeen(100, share), step_ratio)


def _found(before, now, error=0.003):
    return costly_line((CODE,), _side(0, error, **before), _side(1, error, **now), TEXTS)


def test_statements_are_looked_at_as_a_whole_and_of_compound_ones_the_head():
    assert ranges_of([5], NEW) == ((4, 6),)
    text = "if a:\n    b()\nfor x in (\n    c\n):\n    d(x)\n"
    assert ranges_of([1, 4], text) == ((1, 1), (3, 5))
    assert ranges_of([2, 6], text) == ((2, 2), (6, 6))
    assert ranges_of([1], "def (") == ()


def test_the_line_whose_part_of_a_step_grew_is_named_and_not_the_largest_or_first():
    """``model(x)`` is half of a step that was a tenth shorter, and ``norm`` is new."""
    a = _side(0, step_ratio=0.9, n0=0.50, n1=0.02)
    found = costly_line((CODE,), a, _side(1, n1=0.45, n2=0.12, n3=0.02), TEXTS)
    assert (found.line, found.text) == (7, "extra = norm(out)")
    assert (found.a_ratio, found.b_ratio) == (0.0, 0.12)


def test_what_the_others_became_does_not_matter_where_they_cost_what_they_did():
    """Of a call one part went to a line of its own, whose text is the most similar one."""
    old = "def f():\n    out = model(features(x))\n"
    new = "def f():\n    inputs = features(x)\n    out = model(inputs)\n    extra = norm(out)\n"
    code = ChangedCode("a.py", "f", 2, 3, "inputs", (Hunk((2, 3, 4), (2,)),))
    texts = {"a.py": old}, {"a.py": new}
    shares = ((0.323,), (0.012, 0.304, 0.069))
    seen = [
        LinesSeen(100, {("a.py", n): Share(part, 0.006) for n, part in enumerate(side)})
        for side in shares
    ]
    sides = [Timed(asked((code,), texts[i], now=bool(i)), seen[i]) for i in (0, 1)]
    found = costly_line((code,), *sides, texts)
    assert (found.line, found.a_ratio, found.b_ratio) == (4, 0.0, 0.069)


def test_times_that_say_more_than_the_pairs_tell_nothing():
    sides = _side(0, n0=0.5, n1=0.02), _side(1, n1=0.5, n2=0.2, n3=0.02)
    assert costly_line((CODE,), *sides, TEXTS, 0.2).line == 7
    assert costly_line((CODE,), *sides, TEXTS, 0.1) is None


def test_lines_that_are_like_none_are_new_only_where_the_others_cost_what_they_did():
    """As threads that had no CPU made of a step: the call of the model in other places."""
    shares = {"n0": 0.01, "n1": 0.45, "n2": 0.12, "n3": 0.02}
    assert _found({"n0": 0.48}, shares).line == 7
    assert _found({"n0": 0.25, "n1": 0.06}, {"n1": 0.2, "n2": 0.05, "n3": 0.2}, 0.02) is None


def test_of_two_added_lines_that_both_cost_the_one_that_costs_more_is_named():
    """A sort of 17 % and a clamp of 3 %, where nothing stood before: neither is like anything."""
    found = _found({}, {"n2": 0.17, "n3": 0.03})
    assert (found.line, found.a_ratio, found.b_ratio) == (7, 0.0, 0.17)


def test_a_place_has_more_of_a_step_than_before_where_that_is_clear():
    a, b = _side(0, n0=0.50, n1=0.02), _side(1, n1=0.45, n2=0.12, n3=0.02)
    assert grown_parts((CODE,), a, b) == {CODE: pytest.approx(0.07)}
    unsure = _side(1, 0.05, n1=0.45, n2=0.12, n3=0.02)
    assert grown_parts((CODE,), a, unsure) == {CODE: 0.0}
    other = ChangedCode("b.py", "f", 1, 1, "x", (Hunk((1,), ()),))
    assert grown_parts((other,), a, b) == {}  # nothing of it was timed


def test_a_line_that_stood_there_before_is_held_against_what_it_was():
    found = _found({"n0": 0.30}, {"n1": 0.55})
    assert (found.line, found.a_ratio, found.b_ratio) == (4, 0.30, 0.55)


@pytest.mark.parametrize(
    ("before", "now", "error"),
    [
        pytest.param({"n0": 0.5}, {"n1": 0.5}, 0.003, id="nothing grew"),
        pytest.param({"n0": 0.5}, {"n1": 0.3, "n2": 0.2}, 0.003, id="moved to another line"),
        pytest.param({}, {"n2": 0.12, "n3": 0.12}, 0.003, id="two as much as each other"),
        pytest.param({}, {"n2": 0.005}, 0.001, id="too little"),
        pytest.param({}, {"n2": 0.12}, 0.05, id="steps differ too much"),
        pytest.param({"n0": 0.5}, {"n1": 0.3}, 0.003, id="less than before"),
    ],
)
def test_where_no_line_is_clear_none_is_named(before, now, error):
    assert _found(before, now, error) is None


def test_code_that_took_the_place_of_nothing_needs_no_look_at_the_base():
    added = ChangedCode("a.py", "loss", 7, 1, "extra = norm(out)", (Hunk((7,), ()),))
    wanted = asked((added,), TEXTS[1], now=True)
    b = Timed(wanted, LinesSeen(100, {("a.py", 0): Share(0.1, 0.01)}))
    found = costly_line((added,), Timed({}, None), b, TEXTS)
    assert (found.line, found.a_ratio) == (7, 0.0)


PROGRAM = """
import time
import pinchpoint

def inner():
    time.sleep(0.01)

def step(n):
    inner()
    for _ in range(2):
        time.sleep(
            0.01
        )
    return list(inner() for _ in range(1))

for n in range(30):
    step(n)
    pinchpoint.step()
"""


def _run(tmp_path, ranges):
    script = tmp_path / "a.py"
    script.write_text(PROGRAM)
    path = ":".join(p for p in sys.path if p)
    lines = ranges if isinstance(ranges, str) else json.dumps({str(script): ranges})
    env = recording_environment({"PYTHONPATH": path, LINES_VARIABLE: lines}, str(tmp_path))
    done = subprocess.run(
        [sys.executable, "a.py"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return str(script), read_lines(tmp_path)


def test_lines_of_a_program_are_timed_and_what_they_call_is_theirs(tmp_path):
    """Of steps of 40 ms, all asleep: a quarter each, and half in the loop; sleep is no waiting for
    a CPU, and wakes late by the same in each."""
    script, seen = _run(tmp_path, [[9, 9], [11, 13], [14, 14]])
    assert seen.steps == 25
    shares = [seen.share[script, n] for n in range(3)]
    assert sum(s.mean for s in shares) == pytest.approx(1.0, abs=0.1)
    assert shares[1].mean == pytest.approx(0.5, abs=0.1)
    assert all(0 < s.error < 0.1 for s in shares)


def test_the_innermost_line_has_the_time_and_loops_of_the_program_are_timed(tmp_path):
    """Line 6 is asked for, and line 17, whose call of ``step`` comes to it."""
    script, seen = _run(tmp_path, [[6, 6], [17, 17]])
    inside, outside = (seen.share[script, n].mean for n in range(2))
    assert inside == pytest.approx(0.5, abs=0.1)
    assert outside == pytest.approx(0.5, abs=0.1)


def test_nonsense_in_the_environment_is_no_watch(tmp_path):
    assert _run(tmp_path, "{")[1] is None
