"""Device work of a compiled program belongs to the lines that the program was made of."""

from pathlib import Path

import numpy as np

import pinchpoint as pp
from pinchpoint.analysis.causal.pieces import Cut, compiled_names, compiled_place, pieces
from pinchpoint.analysis.causal.profile import causal, off_path
from pinchpoint.analysis.device.compiled import compiled_rows
from pinchpoint.compare.worth import changed_worth
from pinchpoint.report.documents.causal import causal_document

RECORDING = next((Path(__file__).parents[2] / "data").rglob("h100_train*.xplane.pb*"))


def test_lines_of_a_program_and_not_of_its_call():
    trace = pp.load(RECORDING)
    found, rows = pieces(trace, Cut.LINE), compiled_rows(trace)
    told = np.flatnonzero(rows >= 0)
    assert len(told) > 100
    seen = set()
    for op in told.tolist():
        place = compiled_place(trace.text(trace.compiled_ops, "source", int(rows[op])) or "")
        if place:
            seen.add(place)
            assert compiled_place(trace.names[found.device[op]]) == place
    assert len(seen) == 3


def test_operations_of_a_program_are_its_operators_and_no_rule_counts_them_twice():
    trace = pp.load(RECORDING)
    found = causal(trace, "operator").pieces
    compiled = compiled_names(trace)
    assert len(found) > 10
    assert {piece.name for piece in found} <= compiled
    of_products = [p for p in found if p.name.startswith("custom-call.")]
    assert all(one.limit_ns and one.limit_ns <= one.device_ns for one in of_products)
    assert off_path(trace, Cut.OPERATOR).pieces == ()
    places = {one.place for one in causal_document(trace, "operator").pieces}
    assert {"j.py:5"} <= places <= {"j.py:5", "j.py:9", None}
    assert changed_worth(trace, trace) == ()


def test_how_places_are_spelled():
    assert compiled_place("/my/model.py:41, jit(step)/dot") == "model.py:41"
    assert compiled_place("model.py:41") == "model.py:41"
    assert compiled_place("model.py(41): step") is None
    assert compiled_place("Linear_7") is None
