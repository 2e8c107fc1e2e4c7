import pytest

from bench.micro.fakes import FakeGpu
from pinchpoint.bench.micro.backends import events
from pinchpoint.bench.micro.backends.events import time_block, time_isolated, time_sustained


@pytest.fixture
def gpu(monkeypatch):
    fake = FakeGpu()
    monkeypatch.setattr(events, "perf_counter_ns", lambda: fake.host_ns)
    return fake


def test_the_host_does_not_show_in_a_launch_bound_block(gpu):
    block = time_block(gpu.device(), gpu.call, 100, gpu.issue_ns)
    assert block.device_ns / 100 == pytest.approx(2_000)
    assert block.issue_ns / 100 == pytest.approx(5_000)
    assert block.queue_full


def test_a_spin_that_was_too_short_is_made_longer(gpu):
    block = time_block(gpu.device(), gpu.call, 100, issue_ns=1.0)
    assert block.queue_full
    assert block.device_ns / 100 == pytest.approx(2_000)


def test_a_function_that_waits_inside_is_told(gpu):
    gpu.synchronises = True
    block = time_block(gpu.device(), gpu.call, 100, gpu.issue_ns)
    assert block.queue_full is False
    assert block.device_ns / 100 == pytest.approx(7_000, rel=0.05)


def test_isolated_calls_hot_and_cold(gpu):
    gpu.cold_extra_ns = 3_000
    hot = time_isolated(gpu.device(), gpu.call, 20, cold=False, issue_ns=gpu.issue_ns)
    cold = time_isolated(gpu.device(), gpu.call, 20, cold=True, issue_ns=gpu.issue_ns)
    assert [b.device_ns for b in hot] == pytest.approx([2_000] * 20)
    assert [b.device_ns for b in cold] == pytest.approx([5_000] * 20)
    assert gpu.flushes == 20


def test_a_block_too_long_for_the_spin_is_measured_all_the_same(gpu):
    gpu.issue_ns = 1e9
    block = time_block(gpu.device(), gpu.call, 2, gpu.issue_ns)
    assert block.queue_full is False


def test_sustained_work_leaves_no_pause(gpu):
    gpu.work_ns = 20_000
    blocks = list(time_sustained(gpu.device(), gpu.call, 10, 0.01))
    assert [b.device_ns for b in blocks[1:]] == pytest.approx([200_000] * (len(blocks) - 1))
    assert all(b.queue_full for b in blocks[1:])


def test_sustained_work_that_the_host_paces(gpu):
    blocks = list(time_sustained(gpu.device(), gpu.call, 10, 0.001))
    assert blocks[0].device_ns == pytest.approx(50_000, rel=0.05)
    assert not any(b.queue_full for b in blocks)
