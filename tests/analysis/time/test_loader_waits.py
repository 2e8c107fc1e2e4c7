"""Waiting for the workers of a loader, told from what the thread does in next() itself."""

import pytest

from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.time.loader_waits import loader_waits
from pinchpoint.diagnosis.rules.loading import dataloader_starved
from pinchpoint.trace import HostKind
from program import Program

NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
DRAW = "torch/utils/data/sampler.py(182): __iter__"
ACQUIRE = "<built-in method acquire of _thread.lock object at 0x7f>"
DRAWN, WAIT_US, WORK_US = 1_000, 8_000, 1_000


def taking(*, draws=0, waits_us=0):
    """Each step takes a batch: draws indices, waits for the workers; and computes 1 ms."""
    p = Program()
    for _ in p.steps(6):
        with p.row(NEXT, kind=HostKind.ANNOTATION):
            for _ in range(draws):
                p.host(DRAW, 2)
            if waits_us:
                p.host(ACQUIRE, waits_us)
            elif not draws:
                p.busy(WAIT_US)
        p.kernel("work", WORK_US)
        p.sync()
    return p.trace()


@pytest.mark.parametrize(
    ("trace", "waited_us"),
    [
        (taking(), WAIT_US),
        (taking(draws=DRAWN, waits_us=WAIT_US), WAIT_US),
        (taking(draws=DRAWN), 0),
    ],
    ids=["no frames inside", "draws and waits", "draws"],
)
def test_only_blocking_is_waiting(trace, waited_us):
    spans = loader_waits(trace)
    assert int((spans.end - spans.start).sum()) == pytest.approx(6 * waited_us * 1e3, rel=0.001)


def test_what_recording_adds_to_the_drawing_is_taken_out():
    recorded_us = DRAWN * 2 + WORK_US
    assert corrected_step_ns(taking(draws=DRAWN)) < 0.6 * recorded_us * 1e3


def test_a_thread_that_draws_is_not_starved():
    assert list(dataloader_starved.check(taking(draws=DRAWN))) == []
    (finding,) = dataloader_starved.check(taking(draws=DRAWN, waits_us=WAIT_US))
    assert finding.cost_ns_per_step == pytest.approx(WAIT_US * 1e3, rel=0.001)
