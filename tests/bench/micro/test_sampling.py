import numpy as np
import pytest

from bench.micro.fakes import FakeBackend
from pinchpoint.bench.micro import sampling
from pinchpoint.bench.micro.backends.base import ClockState
from pinchpoint.bench.micro.sampling import calls_a_block, sample, warm_up
from pinchpoint.bench.micro.stopping import StoppingRule
from pinchpoint.monitor.reasons import HARDWARE_THERMAL


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    """Each look at the clock is 10 ms later."""
    now = iter(np.arange(0, 1e6, 0.01))
    monkeypatch.setattr(sampling, "perf_counter", lambda: next(now))


def _nothing():
    return None


def test_warm_up_ends_when_calls_are_steady():
    backend = FakeBackend(call_ns=lambda n: 1_000.0 + 50_000.0 * 0.8**n)
    warm = warm_up(backend, _nothing)
    assert warm.converged
    assert warm.call_ns == pytest.approx(1_000.0, rel=0.03)


def test_warm_up_that_never_ends_is_told():
    warm = warm_up(FakeBackend(call_ns=lambda n: 1_000.0 * 1.02**n), _nothing)
    assert not warm.converged


def test_a_block_is_a_thousand_resolutions_long_and_fits_the_queue():
    backend = FakeBackend()
    assert calls_a_block(backend, 1_000_000.0) == 1
    assert calls_a_block(backend, 10_000.0) == 50
    assert calls_a_block(backend, 10.0) == sampling.MOST_CALLS_A_BLOCK


def test_sampling_stops_when_the_median_is_known():
    warm = warm_up(FakeBackend(), _nothing)
    samples = sample(FakeBackend(), _nothing, warm, "batched", StoppingRule())
    assert samples.precise
    assert len(samples.call_ns) == 30
    assert samples.median_ns == 1_000.0
    assert samples.ci95_ns == (1_000.0, 1_000.0)


def test_sampling_stops_when_the_time_is_up():
    rng = np.random.default_rng(0)
    backend = FakeBackend(call_ns=lambda n: float(rng.uniform(500, 5_000)))
    warm = warm_up(FakeBackend(), _nothing)
    samples = sample(backend, _nothing, warm, "batched", StoppingRule(most_seconds=1.0))
    assert not samples.precise
    assert 3 <= len(samples.call_ns) <= 110


def test_modes_take_their_own_times():
    warm = warm_up(FakeBackend(), _nothing)
    cold = sample(FakeBackend(cold_ns=3_000.0), _nothing, warm, "cold", StoppingRule())
    assert (cold.median_ns, cold.calls) == (3_000.0, 1)


def test_disturbed_samples_are_counted_not_dropped():
    good, hot = ClockState(1980, 0), ClockState(1300, HARDWARE_THERMAL)
    backend = FakeBackend(clocks=[good] * 15 + [hot] * 15)
    warm = warm_up(FakeBackend(), _nothing)
    samples = sample(backend, _nothing, warm, "batched", StoppingRule())
    assert len(samples.call_ns) == 30
    assert samples.disturbed_ratio == 0.5
