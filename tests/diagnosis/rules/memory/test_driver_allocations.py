import pytest

from pinchpoint.trace import ApiKind
from program import Program


def allocating(*, operators=10, every=1, within="aten::mul", steps=4, pieces=1):
    """Each step has operators; one in ``every`` gets memory (50 us) and gives it back (a wait)."""
    p = Program()
    for _ in p.steps(steps):
        for i in range(operators):
            with p.row(within):
                p.kernel("elementwise", 100)
                if i % every == 0:
                    for _ in range(pieces):
                        p.call("cudaMalloc", ApiKind.MALLOC, 50)
                    for _ in range(pieces):
                        p.sync("cudaFree", ApiKind.FREE)
    return p.trace()


def test_a_cache_that_is_switched_off(outcome):
    (finding,) = outcome("driver-allocations", allocating()).findings
    assert finding.summary == (
        "Operators get memory from the driver 10 × a step and give it back 10 ×:"
        " the cache is switched off"
    )
    assert "MEMORY_CACHING" in finding.hint
    assert finding.location.function == "step"


def test_without_it_the_step_is_its_kernels(predicted):
    assert predicted(allocating(), "driver-allocations") == pytest.approx(1e6, rel=0.1)


def test_a_cache_that_cannot_hold_what_a_few_operators_need(outcome):
    trace = allocating(operators=200, every=50, pieces=2)
    (finding,) = outcome("driver-allocations", trace).findings
    assert finding.summary.endswith("the cache cannot hold what they need")
    assert "expandable_segments" in finding.hint


@pytest.mark.parametrize(
    "trace",
    [allocating(within="aten::convolution"), allocating(operators=3), allocating(steps=1)],
    ids=["workspaces of a search", "a workspace or two", "the cache fills"],
)
def test_other_frees_are_not_meant(outcome, trace):
    assert outcome("driver-allocations", trace).answer == "clear"


def test_such_frees_are_no_search_for_an_algorithm(outcome):
    p = Program()
    for _ in p.steps(4):
        for operator in ("aten::convolution", "aten::mul", "aten::add"):
            with p.row(operator):
                p.kernel("work", 100)
                p.sync("cudaFree", ApiKind.FREE)
    assert outcome("cudnn-autotune-churn", p.trace()).answer == "clear"
