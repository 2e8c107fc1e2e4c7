"""Device work of a compiled program belongs to the lines that the program was made of."""

from pathlib import Path

import numpy as np

import pinchpoint as pp
from pinchpoint.analysis.causal.pieces import Cut, compiled_place, pieces
from pinchpoint.analysis.device.compiled import compiled_rows

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


def test_how_places_are_spelled():
    assert compiled_place("/my/model.py:41, jit(step)/dot") == "model.py:41"
    assert compiled_place("model.py:41") == "model.py:41"
    assert compiled_place("model.py(41): step") is None
    assert compiled_place("Linear_7") is None
