"""The page about analyses is what their source says, and their source says what they do."""

import dataclasses
import importlib
import importlib.util
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pinchpoint
from pinchpoint.trace import Trace

SCRIPT = Path(__file__).parents[1] / "docs/refresh_analyses.py"
DEMO = Path(pinchpoint.__file__).parent / "data"


@pytest.fixture(scope="module")
def graph():
    spec = importlib.util.spec_from_file_location("refresh_analyses", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_page_is_up_to_date(graph):
    assert graph.PAGE.read_text("utf-8") == graph.text()


def test_what_an_analysis_reads_and_uses_is_found_through_plain_functions(graph):
    found = {p.name: a for p, a in graph.analyses().items()}
    assert found["issued"].reads == {"api_calls", "device_ops"}
    assert found["issued"].uses == frozenset()
    assert {p.name for p in found["own_work"].uses} == {"issued", "of_own_process"}
    assert "steps" in graph.all_reads(found["breakdown"].place)
    assert "steps" not in found["breakdown"].reads


def test_modules_rooms_and_analyses_use_only_what_stands_below_them(graph):
    """Each of these raises ``graphlib.CycleError`` for a circle."""
    modules = graph.ordered(str)
    rooms = graph.ordered(graph.room_of)
    below = {place: found.uses for place, found in graph.analyses().items()}
    assert len(list(TopologicalSorter(below).static_order())) == len(below) > 50
    assert {graph.room_of(m) for m in modules} == set(rooms)


class Watched(Trace):
    """A trace that notes which of its fields are looked at."""

    looked_at: set[str] = set()  # noqa: RUF012

    def __getattribute__(self, name):
        Watched.looked_at.add(name)
        return super().__getattribute__(name)


def test_no_analysis_looks_at_more_than_the_page_says(graph):
    (recording,) = DEMO.glob("*.json.gz")
    trace = pinchpoint.load(recording)
    fields = {f.name: getattr(trace, f.name) for f in dataclasses.fields(Trace)}
    for place in graph.analyses():
        fresh = Watched(**fields)
        Watched.looked_at = set()
        getattr(importlib.import_module(place.module), place.name)(fresh)
        looked_at = Watched.looked_at & graph.READABLE
        assert looked_at <= graph.all_reads(place), place
