"""Jacobians of few inputs and many outputs, in reverse mode."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import ApiKind, Jacobian, RunFacts

US = 1000
OF = Jacobian(("net.py", 77, "residual"), 24, 2)


def program(*known, pulled_us=80):
    """Steps of 100 µs: the pass back under vmap, then an update of 10."""
    b = TraceBuilder(devices=())
    pool = b.thread("tf_XLAEigen")
    for number in range(6):
        at = number * 100 * US
        b.step(number, at, 100 * US)
        ops = (("fusion.2", at, pulled_us, True), ("add.3", at + 85 * US, 10, False))
        for name, start, took_us, pulled in ops:
            row = {"start_ns": start, "duration_ns": took_us * US}
            b.op(name, start, took_us * US, thread=pool)
            b.add("compiled_ops", op=name, source="net.py:61", pulled_back=pulled, **row)
    trace = b.trace(api_calls=None, device_ops=None)
    return replace(trace, run=RunFacts(jacobians=known))


def test_passes_back_in_place_of_a_few_forward(outcome):
    """Of 90 µs in which programs compute 80 are the passes: of the step 89, with its pauses."""
    (finding,) = outcome("reverse-jacobian", program(OF)).findings
    assert finding.summary == (
        "The Jacobian in residual (net.py:77) has 2 inputs and 24 outputs, and is taken in reverse"
        " mode: 24 passes back in place of 2 forward, 80.0 µs of a step"
    )
    assert finding.likely_saving_ns == pytest.approx(80 / 90 * 100 * US * 22 / 24, rel=0.01)
    least, most = finding.saving_ns_per_step
    assert least == pytest.approx(80 * US * 0.75, rel=0.01)
    assert most == pytest.approx(80 / 90 * 100 * US, rel=0.01)


@pytest.mark.parametrize(
    "trace",
    [
        program(),
        program(replace(OF, outputs=7)),
        program(replace(OF, inputs=0)),
    ],
    ids=["gradients of many samples", "not many more come out", "nothing goes in"],
)
def test_what_forward_mode_would_not_make_quicker(outcome, trace):
    assert outcome("reverse-jacobian", trace).answer == "clear"


def test_passes_back_that_take_little_are_seen(outcome):
    said = outcome("reverse-jacobian", program(OF, pulled_us=2))
    assert (said.answer, said.why) == ("smaller", "smaller than 3 % of the step: 2.0 %")


def on_a_device(*, waits):
    """Steps of 1000 µs: 880 are the pass back on a device, 40 an update, 80 the dispatch."""
    b = TraceBuilder()
    for number in range(6):
        at = number * 1000 * US
        b.step(number, at, 1000 * US)
        b.launch(at + 70 * US, 5 * US, "fusion_2", at + 80 * US, 880 * US)
        b.launch(at + 76 * US, 4 * US, "add_3", at + 960 * US, 40 * US)
        for op, name, start, took, pulled in (
            ("fusion.2", "fusion_2", 80, 880, True),
            ("add.3", "add_3", 960, 40, False),
        ):
            row = {"start_ns": at + start * US, "duration_ns": took * US, "device": 0}
            b.add("compiled_ops", op=op, kernel=name, pulled_back=pulled, **row)
        if waits:
            b.api("wait", at + 80 * US, 920 * US, kind=ApiKind.SYNC_EVENT)
        else:
            b.python("step.py(1): compute", at + 80 * US, 920 * US)
    return replace(b.trace(), run=RunFacts(jacobians=(OF,)))


def test_of_a_device_the_wait_for_the_passes_goes_with_them(outcome):
    (finding,) = outcome("reverse-jacobian", on_a_device(waits=True)).findings
    least, most = finding.saving_ns_per_step
    assert least == pytest.approx(880 * US * 18 / 24, rel=0.05)
    assert finding.likely_saving_ns == pytest.approx(880 * US * 22 / 24, rel=0.05)
    assert most == pytest.approx(880 * US, rel=0.05)
    assert finding.leaves_ns_per_step == pytest.approx(40 * US, rel=0.05)


def test_a_host_that_computes_as_long_stays(outcome):
    (finding,) = outcome("reverse-jacobian", on_a_device(waits=False)).findings
    assert finding.saving_ns_per_step[1] <= 50 * US
