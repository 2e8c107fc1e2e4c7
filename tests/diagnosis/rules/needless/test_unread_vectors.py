"""Solvers whose vectors nobody reads, found again in a recording."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_values import RunValues, VainOperations, VainWork

MS = 1_000_000


def solving(name="aten::_linalg_eigh", around="aten::linalg_eigh", *, kind="results"):
    """Steps of 10 ms on a CPU: 6 of them for one solver."""
    b = TraceBuilder()
    for step in range(6):
        at = step * 10 * MS
        b.step(step, at, 10 * MS)
        if around:
            b.op(around, at + 1_000, 6 * MS + 2_000)
        b.op(name, at + 2_000, 6 * MS, shapes="[[64, 64]]")
        b.op("aten::mm", at + 7 * MS, 2 * MS, shapes="[[64, 64], [64, 64]]")
    operations = (VainOperations(name, ((64, 64),), 1, ((0, 0),)),)
    note = VainWork(kind, (("a.py", 3, "f"),), operations, False, 1, None, None, 1.0)
    values = RunValues(30, 1, True, (), (), 0, work=(note,), operators=(name, "aten::mm"))
    return replace(b.trace(), run=RunFacts(values=values))


@pytest.mark.parametrize(
    ("name", "around", "hint"),
    [
        ("aten::_linalg_eigh", "aten::linalg_eigh", "torch.linalg.eigvalsh(a)"),
        ("aten::_linalg_svd", "aten::linalg_svd", "torch.linalg.svdvals(a)"),
        ("aten::linalg_eig", "", "torch.linalg.eigvals(a)"),
        ("aten::linalg_qr", "", 'torch.linalg.qr(a, mode="r").R'),
    ],
)
def test_values_alone_are_asked_for(outcome, name, around, hint):
    (found,) = outcome("unread-vectors", solving(name, around)).findings
    assert f"of 1 call of {name} a step in f (a.py:3), only the " in found.summary
    assert found.hint == hint
    (least,), (most,) = found.changes, found.at_best
    assert 0 < most.factor < least.factor < 1
    assert len(least.host_ops) == 5  # judged steps: the first has none before it


@pytest.mark.parametrize(
    ("name", "around"),
    [
        ("aten::_linalg_eigh", "aten::linalg_eigvalsh"),
        ("aten::_linalg_svd", "aten::linalg_svdvals"),
        ("aten::linalg_eig", "aten::linalg_eigvals"),
        ("aten::_linalg_eigh", ""),  # who asked for it is not recorded
    ],
)
def test_vectors_that_nobody_asked_for(outcome, name, around):
    assert outcome("unread-vectors", solving(name, around)).findings == ()


def test_another_kind_of_note(outcome):
    assert outcome("unread-vectors", solving(kind="repeat")).findings == ()
