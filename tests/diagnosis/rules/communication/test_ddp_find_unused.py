import pytest

from pinchpoint.trace import HostKind
from program import Program

SEARCH = "torch/nn/parallel/distributed.py(1500): _find_tensors"


def forward(*, ddp=True, search=SEARCH):
    """A forward pass of 1 ms; DDP may search its output first, for 2 ms."""
    p = Program()
    name = "DistributedDataParallel.forward" if ddp else "forward"
    for _ in p.steps(6):
        with p.row(name, kind=HostKind.ANNOTATION):
            p.kernel("forward", 1_000)
            if search:
                p.host(search, 2_000)
    return p.trace()


def test_where_the_search_is_recorded_it_has_a_cost(outcome, predicted):
    (finding,) = outcome("ddp-find-unused", forward()).findings
    assert finding.cost_ns_per_step == 2_000_000
    assert predicted(forward(), "ddp-find-unused") == pytest.approx(1e6, rel=0.05)


def test_else_the_flag_is_in_no_trace(outcome):
    answer = outcome("ddp-find-unused", forward(search=None))
    assert answer.answer == "not checked"
    assert "find_unused_parameters" in answer.record


def test_without_ddp_nobody_searches(outcome):
    assert outcome("ddp-find-unused", forward(ddp=False, search=None)).answer == "clear"
