"""Jacobians of few inputs and many outputs, in reverse mode."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import Jacobian, RunFacts

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
