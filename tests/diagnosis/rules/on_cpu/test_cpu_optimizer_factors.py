import pytest

from builders import TraceBuilder

MS = 1_000_000


def training(name="aten::linalg_eigh", *, ms=20, every=1, inside=True, around_ms=30):
    """Steps of 100 ms: an optimizer of 50, in which a function of 30 factors a matrix for 20."""
    b = TraceBuilder(devices=[])
    for step in range(6):
        at = step * 100 * MS
        b.step(step, at, 100 * MS)
        b.op("aten::mm", at + MS, 30 * MS)
        if inside:
            b.annotation("Optimizer.step#Shampoo.step", at + 40 * MS, 50 * MS)
        if step % every == 0:
            b.python("shampoo.py(18): inverse_root", at + 41 * MS, around_ms * MS)
            b.op(name, at + 42 * MS, ms * MS)
    return b.trace()


def test_statistics_that_are_factored_anew(outcome, predicted):
    (found,) = outcome("cpu-optimizer-factors", training()).findings
    assert found.cost_ns_per_step == 20 * MS
    assert found.location.function == "inverse_root"
    assert "factors 1 matrices anew in each step" in found.summary
    # A tenth of the factors stays, 82 of 100, or all of the function goes, 70, and more with it.
    assert 60 * MS < predicted(training(), "cpu-optimizer-factors") < 80 * MS


def test_a_function_that_does_more_stays(outcome):
    (found,) = outcome("cpu-optimizer-factors", training(ms=12, around_ms=48)).findings
    values = {e.what: e.value for e in found.evidence}
    assert values["the functions that call them"] == 12 * MS


@pytest.mark.parametrize(
    "trace",
    [
        training(every=2),
        training(inside=False),
        training("aten::linalg_svd"),
        training(ms=4),
    ],
    ids=["refreshed now and then", "of the model", "an orthogonal update", "little of the step"],
)
def test_it_stays_quiet(outcome, trace):
    assert outcome("cpu-optimizer-factors", trace).findings == ()
