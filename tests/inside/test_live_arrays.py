"""Arrays that JAX holds, counted."""

import sys
from types import SimpleNamespace

import pytest

from pinchpoint.inside import live_arrays


def held(*looks):
    return [SimpleNamespace(dtype=dtype, shape=shape) for dtype, shape in looks]


@pytest.fixture
def jax(monkeypatch):
    """With what it holds."""
    monkeypatch.setattr(live_arrays, "found", {})
    found = SimpleNamespace(live_arrays=list)
    monkeypatch.setitem(sys.modules, "jax", found)
    return found


def test_the_latest_look_is_kept(jax):
    jax.live_arrays = lambda: held(("float32", (2, 3)), ("float32", (2, 3)), ("int32", ()))
    live_arrays.look()
    assert live_arrays.found == {("float32", (2, 3)): 2, ("int32", ()): 1}
    jax.live_arrays = lambda: held(("int32", ()))
    live_arrays.look()
    assert live_arrays.found == {("int32", ()): 1}


def test_an_array_that_was_given_away_meanwhile(jax):
    jax.live_arrays = lambda: [object()]
    live_arrays.look()
    assert live_arrays.found == {}


def test_more_shapes_than_are_looked_at(jax):
    jax.live_arrays = lambda: held(*(("float32", (n,)) for n in range(1000)))
    live_arrays.look()
    assert live_arrays.found == {}


def test_without_jax(monkeypatch):
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    live_arrays.look()
