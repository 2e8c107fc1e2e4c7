"""A call of the framework that reads several values: what it launches is for nothing else."""

import pytest

from pinchpoint.analysis.replay import DropDeviceOps
from program import Program

JUDGED = 5  # of 6 steps
READS = 10


def formatting(*, reads=READS, launches_after=0, caller="torch/_tensor.py(568): __repr__"):
    """Each step formats a tensor: kernels that cut it into pieces, and a read of each."""
    p = Program()
    for _ in p.steps(6):
        with p.row("aten::add"):
            p.kernel("elementwise", 200)
        with p.frame(caller):
            for _ in range(reads):
                with p.row("aten::select"):
                    p.kernel("slice", 2)
                p.read()
                p.busy(100)
            for _ in range(launches_after):
                p.kernel("elementwise", 2)
    return p.trace()


def for_values(finding):
    return sum(len(c.device_ops) for c in finding.changes if isinstance(c, DropDeviceOps))


def test_all_that_the_call_does_goes_with_its_reads(outcome, ranked):
    trace = formatting()
    (finding,) = outcome("sync-in-loop", trace).findings
    assert for_values(finding) == JUDGED * 2 * READS  # a slice and a copy for each
    assert finding.evidence[-1].value == 2 * READS
    assert "format" in finding.fix
    assert ranked(trace) == ["sync-in-loop"]


@pytest.mark.parametrize(
    ("trace", "prints"),
    [
        (formatting(reads=1), True),
        (formatting(launches_after=1), True),
        (formatting(caller="train.py(9): report"), False),
        (formatting(caller="<built-in function linalg_eigh>"), False),
    ],
    ids=["one value", "work follows", "the program's own function", "an operator's own checks"],
)
def test_work_that_may_be_for_more_stays(outcome, trace, prints):
    (finding,) = outcome("sync-in-loop", trace).findings
    assert for_values(finding) == 0
    assert ("format" in finding.fix) == prints
