"""Conditions of JAX of which vmap makes a choice."""

import sys
from types import SimpleNamespace

import pytest

from pinchpoint.inside import both_branches


@pytest.fixture
def jax(monkeypatch):
    """JAX's modules, as far as they are asked: frames are of one program file."""

    def frame(file, line, function="step_one"):
        return SimpleNamespace(file_name=file, start_line=line, function_name=function)

    def equation(line, **params):
        source = SimpleNamespace(traceback=[frame("env.py", line)])
        return SimpleNamespace(source_info=source, params=params)

    inner = SimpleNamespace(jaxpr=SimpleNamespace(eqns=[equation(23)]))
    branch = SimpleNamespace(jaxpr=SimpleNamespace(eqns=[equation(20), equation(25, body=inner)]))
    ours = frame(both_branches.__file__, 1)
    sources = SimpleNamespace(
        user_frames=iter,
        current=lambda: SimpleNamespace(traceback=[ours, frame("env.py", 39)]),
    )
    calls = []
    rules = {"cond": lambda *args, **params: calls.append((args, params)) or "out"}
    conditions = SimpleNamespace(cond_p="cond", __file__="jax/conditionals.py")
    batching = SimpleNamespace(fancy_primitive_batchers=rules)
    monkeypatch.setitem(sys.modules, "jax._src.source_info_util", sources)
    monkeypatch.setitem(sys.modules, "jax._src.lax.control_flow.conditionals", conditions)
    monkeypatch.setitem(sys.modules, "jax._src.interpreters.batching", batching)
    monkeypatch.setattr(both_branches, "found", {})
    return SimpleNamespace(rules=rules, branches=(branch,), calls=calls)


def unexpected(name, error):
    raise AssertionError(name) from error


def test_lines_of_the_branches_are_noted_where_the_predicate_differs_by_row(jax):
    original = jax.rules["cond"]
    take_back = both_branches.watch(unexpected)
    assert jax.rules["cond"]("axis", ["index"], [0], branches=jax.branches) == "out"
    place = ("env.py", 39, "step_one")
    assert both_branches.found == {place: {("env.py", 20), ("env.py", 25), ("env.py", 23)}}
    assert jax.calls == [(("axis", ["index"], [0]), {"branches": jax.branches})]
    assert jax.rules["cond"].__code__.co_filename == "jax/conditionals.py"  # no frame of the user's
    take_back()
    assert jax.rules["cond"] is original


@pytest.mark.parametrize("dims", [[None], [], 5], ids=["one predicate", "none", "another version"])
def test_other_conditions_go_on_as_they_are(jax, dims):
    take_back = both_branches.watch(unexpected)
    assert jax.rules["cond"]("axis", ["index"], dims, branches=jax.branches) == "out"
    take_back()
    assert both_branches.found == {}
