import pytest

from builders import TraceBuilder
from pinchpoint.analysis.replay import unprofiled
from pinchpoint.analysis.replay.unprofiled import unprofiled_breakdown
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.trace import ApiKind


@pytest.fixture
def trace():
    """Steps of 100 µs: 40 of matrix products, 20 of waiting in a call, 40 of dispatching."""
    b = TraceBuilder()
    for i in range(5):
        at = i * 100_000
        b.step(i, at, 99_000)
        b.op("aten::mm", at + 1_000, 38_000)
        b.launch(at + 39_000, 1_000, "sgemm", at + 40_000, 40_000)
        b.api("cudaDeviceSynchronize", at + 45_000, 55_000, kind=ApiKind.SYNC_DEVICE)
    return b.trace()


def corrected_to(monkeypatch, step_ns):
    monkeypatch.setattr(unprofiled, "corrected_step_ns", lambda trace: step_ns)


def by_part(found):
    return dict(zip([p.id for p in found.parts], found.ns_per_step.tolist(), strict=True))


def test_the_cost_comes_out_of_the_hosts_own_work(trace, monkeypatch):
    recorded = by_part(breakdown(trace))
    own = sum(ns for part, ns in recorded.items() if part in ("idle-dispatch", "idle-after-sync"))
    assert own > 30_000
    corrected_to(monkeypatch, 70_000)
    found = unprofiled_breakdown(trace)
    assert found.typical_ns == 70_000
    assert int(found.ns_per_step.sum()) == 70_000
    assert by_part(found)["gemm"] == recorded["gemm"] == 40_000
    assert by_part(found).get("idle-sync") == recorded.get("idle-sync")


def test_waits_shrink_only_if_the_rest_was_not_enough(trace, monkeypatch):
    corrected_to(monkeypatch, 41_000)
    found = unprofiled_breakdown(trace)
    assert by_part(found)["gemm"] == 40_000
    assert found.of_group("idle") == 1_000


@pytest.mark.parametrize(
    "step_ns",
    [
        pytest.param(None, id="not known"),
        pytest.param(39_000, id="shorter than the device's work"),
        pytest.param(101_000, id="longer than recorded"),
    ],
)
def test_what_cannot_be_taken_out_of_idle_time(trace, monkeypatch, step_ns):
    corrected_to(monkeypatch, step_ns)
    assert unprofiled_breakdown(trace) is None


def test_every_nanosecond_is_taken_once(trace, monkeypatch):
    for step_ns in range(60_000, 60_050):
        corrected_to(monkeypatch, step_ns)
        unprofiled_breakdown.__wrapped__(trace)
        assert int(unprofiled_breakdown.__wrapped__(trace).ns_per_step.sum()) == step_ns
