"""Every number that decides something says where it is from, on its line or right above it."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import pinchpoint

HOME = Path(pinchpoint.__file__).parent
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
# Without a reason today; this list only gets shorter.
MISSING = {
    "analysis/device/kernels_during_collectives.py:BESIDE_RATIO",
    "analysis/tables/call_tree.py:NO_NODE",
    "analysis/costs/convolution.py:_ALWAYS_TRANSPOSED",
    "analysis/costs/optimizers.py:_STATE_BYTES",
    "analysis/costs/optimizers.py:_ADAGRAD",
    "analysis/host/timeline.py:NO_ROW",
    "analysis/time/idle_causes.py:MOST_KEYS",
    "analysis/limits/counter_facts.py:_SECTOR_BYTES",
    "analysis/limits/counter_issues.py:TAIL_NVIDIA_RATIO",
    "analysis/limits/counter_issues.py:TENSOR_IDLE_PERCENT",
    "analysis/limits/counters.py:NOT_PROFILED",
    "analysis/memory/checkpointing.py:MIN_LAYERS",
    "analysis/memory/owners/lasting.py:LT_WORKSPACE_BYTES",
    "analysis/ranks/clocks.py:ROUNDS",
    "analysis/ranks/clocks.py:FEWEST_FOR_DRIFT",
    "analysis/ranks/late_causes.py:MOST_NAMED",
    "analysis/ranks/lost_time.py:CAUSES_KEPT",
    "analysis/ranks/rendezvous.py:NO_STEP",
    "analysis/ranks/rendezvous.py:_NEVER",
    "analysis/ranks/matching.py:_MASK",
    "analysis/ranks/what_if.py:PASSES",
    "analysis/ranks/what_if.py:LIKE_ITSELF",
    "analysis/ranks/stragglers.py:MOST_NAMED",
    "analysis/ranks/stragglers.py:MOST_INCIDENTS",
    "analysis/ranks/summarise.py:KERNELS_KEPT",
    "analysis/ranks/timeline.py:MOST_LANES",
    "analysis/ranks/waits.py:NOBODY",
    "analysis/ranks/waits.py:_FAR",
    "analysis/replay/simulate.py:PASSES",
    "analysis/time/stalls.py:FAR_LONGER",
    "analysis/time/stalls.py:RARE_RATIO",
    "analysis/time/stalls.py:FEWEST_ALIKE",
    "analysis/time/stalls.py:NEAR_RATIO",
    "analysis/time/stalls.py:MOSTLY_RATIO",
    "analysis/work/operator_work.py:NOT_KNOWN",
}


def without_a_reason(text: str) -> Iterator[str]:
    """Names of module-level numeric constants without a comment of their own."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {t.start[0]: t.line.lstrip().startswith("#") for t in tokens if t.string[:1] == "#"}
    for statement in ast.parse(text).body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or not _is_number(statement.value):
            continue
        lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        if comments.get(statement.lineno - 1) or any(line in comments for line in lines):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        yield from (name for name in names if CONSTANT.fullmatch(name))


def _is_number(value: ast.expr | None) -> bool:
    """Whether a value is a number, a tuple of numbers, or arithmetic with them."""
    match value:
        case ast.Constant(value=number):
            return isinstance(number, int | float) and not isinstance(number, bool)
        case ast.Tuple(elts=parts):
            return bool(parts) and all(map(_is_number, parts))
        case ast.UnaryOp(operand=part):
            return _is_number(part)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) or _is_number(right)
    return False


def test_what_counts_as_a_reason():
    text = """
A = 1
B = 2  # measured
# as published
C = 3
D = 4
E, F = 0.5, 1 << 20
_G: int = -5
NAMES = ("a", "b")
ON = True
small = 1
H = (
    1,  # why
    2,
)
"""
    assert list(without_a_reason(text)) == ["A", "D", "E", "F", "_G"]


@pytest.mark.parametrize("package", ["diagnosis", "analysis"])
def test_numbers_that_decide_have_reasons(package):
    missing = {
        f"{path.relative_to(HOME).as_posix()}:{name}"
        for path in (HOME / package).rglob("*.py")
        for name in without_a_reason(path.read_text())
    }
    expected = {entry for entry in MISSING if entry.startswith(package)}
    assert missing - expected == set(), "say on or above its line why it has this value"
    assert expected - missing == set(), "take it off the list"
