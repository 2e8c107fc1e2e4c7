from types import SimpleNamespace

import numpy as np
import pytest

import pinchpoint as pp
from bench.micro.fakes import FakeBackend
from pinchpoint.bench.micro import sampling, time_function
from pinchpoint.bench.micro.backends import backend_named, backend_of
from pinchpoint.bench.micro.document import document
from pinchpoint.bench.micro.mistakes import explain_claim
from pinchpoint.bench.micro.time_function import least_bytes
from pinchpoint.bench.micro.timing import StoppingRule
from pinchpoint.errors import MissingExtra, UsageError

QUICK = StoppingRule(precision=0.5, least_samples=20, least_seconds=0, most_seconds=0.05)


@pytest.fixture
def timed(monkeypatch):
    """``pp.time`` on a backend with known times."""
    monkeypatch.setattr(sampling, "LEAST_WARMUP_S", 0.0)
    monkeypatch.setattr(sampling, "MOST_WARMUP_S", 0.1)

    def arrange(fn=lambda: None, *, backend=None, rule=QUICK, **more):
        place = backend or FakeBackend()
        monkeypatch.setattr(time_function, "backend_named", lambda name: place)
        return time_function.time_function(fn, rule=rule, **more)

    return arrange


def _ids(timing):
    return {r.id for r in timing.remarks}


def test_nothing_to_remark(timed):
    timing = timed(backend=FakeBackend(call_ns=50_000.0, cold_ns=51_000.0, issue_each_ns=45_000.0))
    assert _ids(timing) == set()
    assert timing.invalid_reasons == ()
    assert timing.median_ns == 50_000.0
    assert "50 µs" in str(timing)


def test_no_sync_would_have_timed_the_launch(timed):
    timing = timed(backend=FakeBackend(call_ns=50_000.0, cold_ns=50_000.0, issue_each_ns=4_000.0))
    [remark] = timing.remarks
    assert remark.id == "bench-no-sync"
    assert "4 µs for 50 µs" in remark.text
    assert explain_claim(timing, 4_100.0).id == "bench-no-sync"


def test_the_cache_matters(timed):
    timing = timed(backend=FakeBackend(call_ns=50_000.0, cold_ns=80_000.0, issue_each_ns=45_000.0))
    assert _ids(timing) == {"bench-hot-cache"}
    assert explain_claim(timing, 50_000.0).id == "bench-hot-cache"
    assert explain_claim(timing, 81_000.0).id == "plausible"


def test_launch_bound(timed):
    timing = timed(backend=FakeBackend(call_ns=20_000.0, cold_ns=20_000.0, issue_each_ns=45_000.0))
    assert timing.host_bound
    assert "launch-bound" in _ids(timing)


def test_first_calls_in_a_claim(timed):
    timing = timed(backend=FakeBackend(call_ns=50_000.0, cold_ns=50_000.0, issue_each_ns=45_000.0))
    slow_start = timing.__class__(**(vars(timing) | {"first_call_ns": 5e9}))
    assert explain_claim(slow_start, 4e8).id == "bench-no-warmup"
    assert explain_claim(slow_start, 9e9).id == "unexplained"


def test_above_the_ceiling(timed):
    half = SimpleNamespace(dtype="torch.float16", nbytes=8, shape=(4,))
    timing = timed(lambda: half, flop=1e12)
    assert "faster than the device can be" in timing.invalid_reasons[0]
    assert "above-ceiling" in _ids(timing)


def test_a_bandwidth_above_the_memorys_names_the_cache(timed):
    timing = timed(moved_bytes=1e8, cold=False, backend=FakeBackend(call_ns=10_000.0))
    assert "bench-hot-cache" in _ids(timing)
    assert timing.unknown == {"cold": "not asked for"}


def test_two_speeds_and_slowing_down(timed):
    steps = FakeBackend(call_ns=lambda n: 50_000.0 if n % 2 else 60_000.0, cold_ns=5e4)
    assert "two-speeds" in _ids(timed(backend=steps))


def test_a_device_at_its_power_limit(timed):
    rule = StoppingRule(0.5, 20, least_seconds=0, most_seconds=0.05, sustained_seconds=1.0)
    backend = FakeBackend(call_ns=5e4, cold_ns=5e4, sustained_ns=54_000.0)
    timing = timed(backend=backend, rule=rule)
    assert timing.sustained.median_ns == 54_000.0
    assert "slows-down" in _ids(timing)
    assert "sustained" in str(timing)
    assert "sustained" in document(timing).modes


def test_what_the_function_raises_goes_through(timed):
    with pytest.raises(ZeroDivisionError):
        timed(lambda: 1 / 0)


def test_the_document_explains_every_null(timed):
    written = document(timed(), with_samples=True)
    assert written.modes["batched"].samples_ns[0] == 1_000.0
    assert {"flop", "moved_bytes", "modes.*.sm_clock_mhz"} <= set(written.unknown)


def test_numpy_on_the_cpu(monkeypatch):
    monkeypatch.setattr(sampling, "LEAST_WARMUP_S", 0.0)
    x = np.ones(1000)
    timing = pp.time(np.add, x, x, rule=QUICK)
    assert timing.backend == "cpu"
    assert timing.moved_bytes == 16_000.0
    assert timing.batched.median_ns > 0
    assert not timing.host_bound


@pytest.mark.torch
def test_torch_on_the_cpu_counts_its_work(monkeypatch):
    torch = pytest.importorskip("torch", reason="times torch")
    monkeypatch.setattr(sampling, "LEAST_WARMUP_S", 0.0)
    x = torch.ones(32, 32)
    timing = pp.time(torch.mm, x, x, rule=QUICK)
    assert timing.flop == 2 * 32**3
    assert timing.moved_bytes == 2 * 32 * 32 * 4
    assert backend_of([torch.nn.Linear(2, 2)]) == "cpu"


def test_least_bytes_counts_each_storage_once():
    x, y = np.ones(10), np.ones(5)
    assert least_bytes([x, [x, y]], x) == 120.0
    assert least_bytes([1, "a"], None) is None


def test_backends_by_name():
    assert backend_named("cpu").name == "cpu"
    with pytest.raises(UsageError, match="no backend 'tpu'"):
        backend_named("tpu")
    with pytest.raises(MissingExtra, match="backend cupy"):
        backend_named("cupy")
