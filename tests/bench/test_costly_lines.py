"""A gate once showed the first line that a commit changed in place of the one that costs."""

import json
import subprocess
import sys

import pytest

from pinchpoint.bench.ab.changed_code import ChangedCode, Hunk
from pinchpoint.bench.ab.costly_lines import Looked, asked, costly_line, ranges_of
from pinchpoint.bench.run.lines import LinesSeen, read_lines
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


def _looked(now, looks=2000, **shares):
    """``shares``: of the statements that are looked at, in their order."""
    wanted = asked((CODE,), TEXTS[now], now=bool(now))
    return Looked(wanted, LinesSeen(looks, {("a.py", int(n[1:])): s for n, s in shares.items()}))


def _found(before, now, looks=2000):
    return costly_line((CODE,), _looked(0, looks, **before), _looked(1, looks, **now), TEXTS)


def test_statements_are_looked_at_as_a_whole_and_of_compound_ones_the_head():
    assert ranges_of([5], NEW) == ((4, 6),)
    text = "if a:\n    b()\nfor x in (\n    c\n):\n    d(x)\n"
    assert ranges_of([1, 4], text) == ((1, 1), (3, 5))
    assert ranges_of([2, 6], text) == ((2, 2), (6, 6))
    assert ranges_of([1], "def (") == ()


def test_the_line_whose_part_of_a_step_grew_is_named_and_not_the_largest_or_first():
    """``model(x)`` is half of a step before and after, and ``norm`` is new."""
    found = _found({"n0": 0.50, "n1": 0.02}, {"n0": 0.0, "n1": 0.45, "n2": 0.12, "n3": 0.02})
    assert (found.line, found.text) == (7, "extra = norm(out)")
    assert (found.a_ratio, found.b_ratio) == (0.0, 0.12)


def test_what_the_others_became_does_not_matter_where_they_cost_what_they_did():
    """Of a call one part went to a line of its own, whose text is the most similar one."""
    old = "def f():\n    out = model(features(x))\n"
    new = "def f():\n    inputs = features(x)\n    out = model(inputs)\n    extra = norm(out)\n"
    code = ChangedCode("a.py", "f", 2, 3, "inputs", (Hunk((2, 3, 4), (2,)),))
    texts = {"a.py": old}, {"a.py": new}
    shares = ({("a.py", 0): 0.323}, {("a.py", 0): 0.012, ("a.py", 1): 0.304, ("a.py", 2): 0.069})
    sides = [
        Looked(asked((code,), texts[i], now=bool(i)), LinesSeen(700, shares[i])) for i in (0, 1)
    ]
    found = costly_line((code,), *sides, texts)
    assert (found.line, found.a_ratio, found.b_ratio) == (4, 0.0, 0.069)


def test_a_line_that_stood_there_before_is_held_against_what_it_was():
    found = _found({"n0": 0.30}, {"n1": 0.55})
    assert (found.line, found.a_ratio, found.b_ratio) == (4, 0.30, 0.55)


@pytest.mark.parametrize(
    ("before", "now", "looks"),
    [
        pytest.param({"n0": 0.5}, {"n1": 0.5}, 2000, id="nothing grew"),
        pytest.param({"n0": 0.5}, {"n1": 0.3, "n2": 0.2}, 2000, id="moved to another line"),
        pytest.param({}, {"n2": 0.12, "n3": 0.12}, 2000, id="two as much as each other"),
        pytest.param({}, {"n2": 0.005}, 2000, id="too little"),
        pytest.param({}, {"n2": 0.12}, 20, id="too few looks"),
        pytest.param({"n0": 0.5}, {"n1": 0.3}, 2000, id="less than before"),
    ],
)
def test_where_no_line_is_clear_none_is_named(before, now, looks):
    assert _found(before, now, looks) is None


def test_code_that_took_the_place_of_nothing_needs_no_look_at_the_base():
    added = ChangedCode("a.py", "loss", 7, 1, "extra = norm(out)", (Hunk((7,), ()),))
    wanted = asked((added,), TEXTS[1], now=True)
    b = Looked(wanted, LinesSeen(2000, {("a.py", 0): 0.1}))
    found = costly_line((added,), Looked({}, None), b, TEXTS)
    assert (found.line, found.a_ratio) == (7, 0.0)


PROGRAM = """
import time
import pinchpoint

def step():
    time.sleep(0.01)
    time.sleep(
        0.03
    )

for _ in range(12):
    step()
    pinchpoint.step()
"""


def test_the_looks_of_a_program_find_its_lines(tmp_path):
    """Of steps of 40 ms 30 are in the second call, however busy the machine is: both wait."""
    script = tmp_path / "a.py"
    script.write_text(PROGRAM)
    ranges = {str(script): [[6, 6], [7, 9]]}
    env = recording_environment(
        {"PYTHONPATH": ":".join(p for p in sys.path if p), LINES_VARIABLE: json.dumps(ranges)},
        str(tmp_path),
    )
    subprocess.run([sys.executable, "a.py"], cwd=tmp_path, env=env, check=True)
    seen = read_lines(tmp_path)
    assert seen.looks > 20
    assert 0.5 < seen.share[str(script), 1] < 0.95
    assert seen.share[str(script), 0] < seen.share[str(script), 1]


def test_nonsense_in_the_environment_is_no_watch(tmp_path):
    (tmp_path / "a.py").write_text(PROGRAM)
    path = ":".join(p for p in sys.path if p)
    env = recording_environment({"PYTHONPATH": path, LINES_VARIABLE: "{"}, str(tmp_path))
    subprocess.run([sys.executable, "a.py"], cwd=tmp_path, env=env, check=True)
    assert read_lines(tmp_path) is None
