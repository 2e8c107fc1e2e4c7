"""Operators that prepare something for each new shape of their inputs."""

from dataclasses import replace

import pytest

from pinchpoint.trace import ApiKind, RunFacts
from program import Program

LAYERS, STEPS = 8, 6
ATTENTION = "aten::_cudnn_attention_forward"


def decoding(
    *,
    name=ATTENTION,
    plan_us=35_000,
    use_us=40,
    length=lambda step: 32 + step,
    prepares=lambda step, layer: layer == 0,
    shapes=True,
    launches_more=0,
    waits=False,
    buys=False,
    query=1,
    room=None,
    kernel_us=10,
):
    """Each step calls attention in eight layers over a cache that grows; the first one plans."""
    p = Program()
    for step in p.steps(STEPS):
        for layer in range(LAYERS):
            known = {"shapes": [[4, 16, query, 64], [4, 16, length(step), 64]]}
            if room is not None:
                known["strides"] = [[1024, 64, 64, 1], [16 * room * 64, room * 64, 64, 1]]
            with p.frame("serve.py(20): forward"), p.row(name, **(known if shapes else {})):
                if prepares(step, layer):
                    if waits:
                        p.kernel("search", plan_us)
                        p.sync()
                    elif buys:
                        p.call("cudaMalloc", ApiKind.MALLOC, plan_us)
                    else:
                        p.busy(plan_us)
                    for _ in range(launches_more):
                        p.kernel("candidate", 20)
                p.busy(use_us)
                p.kernel("sdpa", kernel_us)
        p.sync()
    return p.trace()


def test_the_call_that_plans_is_told_beside_its_twins_with_the_knob(outcome, ranked):
    trace = decoding()
    (finding,) = outcome("prepared-for-each-shape", trace).findings
    assert finding.summary.startswith(
        f"{ATTENTION} takes the host 35.0 ms for each new shape of its inputs, and 45.2 µs for one"
        " that it had before: 1 new one a step in forward (serve.py:20)"
    )
    assert "enable_cudnn_sdp(False)" in finding.hint
    said = {fact.what: fact.value for fact in finding.evidence}
    assert said["calls with a new shape"] == 1
    assert said["host time of calls with a new shape"] == pytest.approx(35_045_200, rel=1e-3)
    (first, *_) = ranked(trace)
    assert first == "prepared-for-each-shape"
    assert outcome("operator-host-time", trace).answer == "found"  # the general one, which yields
    assert "operator-host-time" not in ranked(trace)


def test_the_step_after_is_one_of_twins(outcome):
    from pinchpoint.diagnosis.engine import diagnose

    (one, *_) = diagnose(decoding()).found
    assert one.predicted.base_ns == pytest.approx(35.5e6, rel=0.03)
    assert one.predicted.step_ns < 1e6  # eight calls of 45 µs


def test_other_operators_are_advised_of_shapes_alone(outcome):
    trace = decoding(name="aten::cudnn_convolution", plan_us=3_000)
    (finding,) = outcome("prepared-for-each-shape", trace).findings
    assert "few shapes" in finding.fix
    assert finding.hint is None


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(decoding(prepares=lambda step, layer: False), id="no plan"),
        pytest.param(decoding(plan_us=200), id="not long"),
        pytest.param(
            decoding(length=lambda step: 32, prepares=lambda step, layer: step == layer == 0),
            id="warming up",
        ),
        pytest.param(
            decoding(
                length=lambda step: 32 + (step > 3), prepares=lambda s, n: s in (0, 4) and not n
            ),
            id="one more length, and no other",
        ),
        pytest.param(decoding(length=lambda step: 32), id="long with a shape that it knows"),
        pytest.param(decoding(prepares=lambda step, layer: True), id="long in each call"),
        pytest.param(decoding(launches_more=8), id="a search for an algorithm"),
        pytest.param(decoding(waits=True), id="waits for the device"),
        pytest.param(decoding(buys=True), id="buys memory for a new size"),
        pytest.param(decoding(name="torch::compiled"), id="a compiler's"),
    ],
)
def test_other_long_calls_are_not_meant(outcome, trace):
    assert outcome("prepared-for-each-shape", trace).answer == "clear"


def in_two_windows(**bare):
    """Times in one window, without shapes; shapes in another one."""
    return replace(decoding(shapes=False, **bare), run=RunFacts(named=decoding()))


def test_the_window_without_shapes_is_asked_by_length_and_gives_the_gain(outcome):
    trace = in_two_windows(plan_us=20_000)
    (finding,) = outcome("prepared-for-each-shape", trace).findings
    assert "takes the host 20.0 ms for each new shape" in finding.summary
    assert "1 new one a step in forward (serve.py:20)" in finding.summary
    assert finding.cost_ns_per_step == pytest.approx(20_045_200, rel=1e-3)


@pytest.mark.parametrize(
    "trace",
    [
        in_two_windows(prepares=lambda step, layer: layer < 2),
        in_two_windows(prepares=lambda step, layer: False),
        in_two_windows(prepares=lambda step, layer: True),
    ],
    ids=["twice as often", "never", "always"],
)
def test_other_long_calls_in_that_window_are_not_judged(outcome, trace):
    assert outcome("prepared-for-each-shape", trace).answer == "not checked"


def test_nothing_there_is_nothing_here(outcome):
    bare, named = decoding(shapes=False), decoding(prepares=lambda step, layer: False)
    trace = replace(bare, run=RunFacts(named=named))
    assert outcome("prepared-for-each-shape", trace).answer == "clear"


def test_without_shapes_it_is_not_checked(outcome):
    said = outcome("prepared-for-each-shape", decoding(shapes=False))
    assert (said.answer, said.why) == ("not checked", "the recording has no shapes of inputs")


@pytest.mark.parametrize(
    ("of", "times"),
    [
        ({"room": 512}, 1.75 * (37 + 512) / 2 / 35),  # 33 to 37 keys in these
        ({}, 1.75),  # nothing says that there is room
        ({"room": 37}, 1.75),  # it is full
        ({"room": 512, "query": 32}, 1.75),  # no decoding
        ({"room": 512, "length": lambda step: 64 - step}, 1.75),  # other lengths, none of a cache
    ],
    ids=["cache that fills", "no strides", "full", "whole prompts", "shorter"],
)
def test_another_backend_may_take_longer_of_the_device_and_more_where_its_cache_fills(
    outcome, of, times
):
    (finding,) = outcome("prepared-for-each-shape", decoding(kernel_us=200, **of)).findings
    used, slower = finding.changes
    assert slower.factor == pytest.approx(times)
    assert len(slower.device_ops) == LAYERS * (STEPS - 1)
    assert finding.at_best == (used,)


def test_what_another_backend_may_take_is_in_the_range():
    from pinchpoint.diagnosis.engine import diagnose

    of = {"kernel_us": 200, "room": 512}
    (one, *_) = diagnose(decoding(**of)).found
    eight_kernels_ns = 8 * 200_000
    assert one.predicted.range_ns[0] <= 1.1 * eight_kernels_ns
    assert one.predicted.range_ns[1] >= 1.75 * (37 + 512) / 2 / 35 * eight_kernels_ns


def test_other_operators_have_no_other_backend(outcome):
    trace = decoding(name="aten::cudnn_convolution", plan_us=3_000)
    (finding,) = outcome("prepared-for-each-shape", trace).findings
    assert (len(finding.changes), finding.at_best) == (1, ())
