import numpy as np
import pytest

from bench.micro.fakes import FakeBackend
from pinchpoint.bench.micro import sampling
from pinchpoint.bench.micro.backends.base import ClockState
from pinchpoint.bench.micro.sampling import calls_a_block, sample_modes, sample_sustained, warm_up
from pinchpoint.bench.micro.timing import StoppingRule
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


def sample(backend, mode, rule=None):
    warm = warm_up(FakeBackend(), _nothing)
    return sample_modes(backend, _nothing, warm, [mode], rule or StoppingRule(least_seconds=0))[
        mode
    ]


def test_sampling_stops_when_the_median_is_known():
    samples = sample(FakeBackend(), "batched")
    assert samples.precise
    assert len(samples.call_ns) == 200
    assert samples.median_ns == 1_000.0
    # 500 calls a block: the clock's resolution of 500 ns is 1 ns a call
    assert samples.ci95_ns == pytest.approx((999.0, 1_001.0), abs=0.01)


def test_looks_come_after_twice_as_many_samples():
    rng = np.random.default_rng(0)
    backend = FakeBackend(call_ns=lambda n: float(rng.normal(1_000, 30)))
    samples = sample(backend, "batched")
    assert samples.precise
    assert len(samples.call_ns) in (400, 800, 1_600)


def test_sampling_stops_when_the_time_is_up():
    rng = np.random.default_rng(0)
    backend = FakeBackend(call_ns=lambda n: float(rng.uniform(500, 5_000)))
    samples = sample(backend, "batched", StoppingRule(most_seconds=1.0))
    assert not samples.precise
    assert 3 <= len(samples.call_ns) <= 1_010


def test_modes_take_turns_and_their_own_times():
    warm = warm_up(FakeBackend(), _nothing)
    backend = FakeBackend(cold_ns=3_000.0)
    rule = StoppingRule(least_seconds=0)
    modes = sample_modes(backend, _nothing, warm, ("batched", "hot", "cold"), rule)
    assert (modes["cold"].median_ns, modes["cold"].calls) == (3_000.0, 1)
    assert {len(m.call_ns) for m in modes.values()} == {200}
    assert backend.order[:4] == ["block"] * 4
    assert backend.order[10:13] == ["hot", "cold", "block"]


def test_disturbed_samples_are_counted_not_dropped():
    good, hot = ClockState(1980, 0), ClockState(1300, HARDWARE_THERMAL)
    samples = sample(FakeBackend(clocks=[good] * 100 + [hot] * 100), "batched")
    assert len(samples.call_ns) == 200
    assert samples.disturbed_ratio == 0.5


def test_sustained_drops_the_time_until_the_device_is_hot():
    warm = warm_up(FakeBackend(), _nothing)
    backend = FakeBackend(call_ns=lambda n: 1_000.0 if n <= 40 else 1_100.0)
    samples = sample_sustained(backend, _nothing, warm, StoppingRule(sustained_seconds=1.0))
    assert samples.mode == "sustained"
    assert samples.median_ns == 1_100.0
    assert len(samples.call_ns) < 60
