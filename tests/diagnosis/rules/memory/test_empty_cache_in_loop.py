import pytest

from pinchpoint.trace import ApiKind
from program import Program

EMPTY = "<built-in function _cuda_emptyCache>"


def emptying(*, inside=None, buys=True, steps=6, every=1):
    """Each step computes 1 ms, gives memory back (waits, and 800 us) and buys it again (200 us)."""
    p = Program()
    for i in p.steps(steps):
        p.kernel("work", 1_000)
        if i % every == 0:
            with p.row(inside) if inside else p.frame(EMPTY):
                p.sync("cudaFree", ApiKind.FREE)
                p.call("cudaFree", ApiKind.FREE, 800)
        if buys:
            with p.row("aten::empty"):
                p.call("cudaMalloc", ApiKind.MALLOC, 200)
    return p.trace()


def test_counts_frees_and_purchases_and_says_where(outcome):
    (finding,) = outcome("empty-cache-in-loop", emptying()).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["driver frees"] == 2
    assert evidence["driver allocations"] == 1
    assert finding.cost_ns_per_step == pytest.approx(1e6 + 1e6, rel=0.01)
    assert finding.location.function == "step"


def test_is_what_a_diagnosis_says_first(predicted):
    assert predicted(emptying(), "empty-cache-in-loop") == pytest.approx(1e6, rel=0.05)


@pytest.mark.parametrize(
    "trace",
    [emptying(inside="aten::empty"), emptying(buys=False), emptying(steps=12, every=4)],
    ids=["a retry of an allocation", "nothing is bought again", "now and then"],
)
def test_other_frees_are_not_meant(outcome, trace):
    assert outcome("empty-cache-in-loop", trace).answer == "clear"
