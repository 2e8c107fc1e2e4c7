"""A stand-in with its calls, in the order that matters."""

import sys
from types import SimpleNamespace

import pytest

from pinchpoint.bench.micro.backends.base import JaxBackend


@pytest.fixture
def jax(monkeypatch):
    log = []
    fake = SimpleNamespace(
        log=log,
        devices=lambda: [SimpleNamespace(platform="gpu", device_kind="NVIDIA H100 80GB HBM3")],
        block_until_ready=lambda x: log.append(("wait", len(x) if isinstance(x, list) else 1)),
        jit=lambda f: lambda x: log.append(("flush",)),
        numpy=SimpleNamespace(full=None, float32=None),
    )
    monkeypatch.setitem(sys.modules, "jax", fake)
    return fake


def test_a_block_waits_once_for_all_results(jax):
    backend = JaxBackend()
    backend.block(lambda: jax.log.append(("call",)), 3, issue_ns=0)
    assert jax.log == [("call",)] * 3 + [("wait", 3)]


def test_isolated_calls_are_waited_for_and_flushed_before(jax):
    backend = JaxBackend()
    backend.isolated(lambda: jax.log.append(("call",)), 1, cold=True, issue_ns=0)
    assert jax.log == [("flush",), ("wait", 1), ("call",), ("wait", 1)]
    assert backend.device == "gpu NVIDIA H100 80GB HBM3"
