"""Jacobians of JAX in reverse mode: how many numbers go in, and how many come out."""

import sys
from types import SimpleNamespace

import pytest

from pinchpoint.inside import jacobians


@pytest.fixture
def api(monkeypatch):
    """JAX's modules, as far as they are asked."""

    def frame(file, line, function="residual"):
        return SimpleNamespace(file_name=file, start_line=line, function_name=function)

    ours = frame(jacobians.__file__, 1)
    sources = SimpleNamespace(
        user_frames=iter,
        current=lambda: SimpleNamespace(traceback=[ours, frame("net.py", 77)]),
    )
    found = SimpleNamespace(_jacrev_unravel=lambda *args: args, __file__="jax/_src/api.py")
    tree = SimpleNamespace(tree_leaves=lambda one: one)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(tree_util=tree))
    monkeypatch.setitem(sys.modules, "jax._src.source_info_util", sources)
    monkeypatch.setitem(sys.modules, "jax._src.api", found)
    monkeypatch.setattr(jacobians, "found", {})
    return found


def unexpected(name, error):
    raise AssertionError(name) from error


def sized(*sizes):
    return [SimpleNamespace(size=size) for size in sizes]


def test_all_that_goes_into_one_function_is_counted_and_again_when_it_is_compiled_anew(api):
    original = api._jacrev_unravel
    take_back = jacobians.watch(unexpected)
    for output in (sized(20, 4), sized(20, 4)):
        for leaf in sized(2, 1):
            assert api._jacrev_unravel(output, leaf, "array") == (output, leaf, "array")
    assert jacobians.found == {("net.py", 77, "residual"): (24, 3)}
    assert api._jacrev_unravel.__code__.co_filename == "jax/_src/api.py"  # no frame of the user's
    take_back()
    assert api._jacrev_unravel is original


def test_another_version_of_jax_goes_on_as_it_is(api):
    take_back = jacobians.watch(unexpected)
    assert api._jacrev_unravel("output", object(), "array")[2] == "array"
    assert jacobians.found == {}
    take_back()


def test_a_version_without_that_function_is_said(api):
    del api._jacrev_unravel
    failed = []
    jacobians.watch(lambda name, error: failed.append(name))
    assert failed == ["jax._src.api"]
