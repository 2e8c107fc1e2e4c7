"""Many variants replayed together take what each takes alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pinchpoint as pp
from pinchpoint.analysis.causal.many import simulate_many, together
from pinchpoint.analysis.replay import simulate as single
from pinchpoint.analysis.replay.replayed_window import replayed_window
from pinchpoint.analysis.replay.simulate import (
    OF_A_BATCH,
    OF_THE_DEVICE,
    PASSES,
    Times,
    all_passes,
    simulate,
)

DATA = Path(__file__).parents[2] / "data"
RECORDINGS = sorted([*DATA.glob("labelled/*.json.gz"), *DATA.glob("kineto/*.json.gz")])


def variant(graph, factor=1.0):
    """All device work and all gaps scaled."""
    return Times(
        (graph.gap_ns * factor).astype(np.int64),
        graph.own_ns,
        (graph.op_duration_ns * factor).astype(np.int64),
        np.zeros(len(graph.op_rows), np.bool_),
        np.zeros(len(graph.lane), np.uint8),
    )


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_each_takes_what_it_takes_alone(path):
    window = replayed_window(pp.load(path))
    if window is None:
        pytest.skip("nothing to replay")
    graph, factors = window.graph, np.array([1.0, 0.5, 0.0])
    together = simulate_many(graph, [variant(graph, factor) for factor in factors])
    for column, factor in enumerate(factors):
        alone = replace(
            graph,
            gap_ns=(graph.gap_ns * factor).astype(np.int64),
            op_duration_ns=(graph.op_duration_ns * factor).astype(np.int64),
        )
        expected = np.array(simulate(alone).durations_ns)
        # What passes differ by where the first state is still felt.
        assert together[:, column].sum() == pytest.approx(expected.sum(), rel=0.02)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_compiled_and_plain_replays_are_one(path, monkeypatch):
    if single.compiled is None:
        pytest.skip("installed without a compiler")
    window = replayed_window(pp.load(path))
    if window is None:
        pytest.skip("nothing to replay")
    graph = window.graph
    kept = [variant(graph), variant(graph, 0.5), variant(graph)]
    kept[2].dropped[::3] = True
    kept[2].free[::2], kept[2].free[::3] = OF_THE_DEVICE, OF_A_BATCH
    assert (simulate_many(graph, kept) == together(graph, kept)).all()
    found = list(all_passes(graph, 1234))
    monkeypatch.setattr(single, "compiled", None)
    plain = list(all_passes(graph, 1234))
    assert found[: len(plain)] == plain
    assert len(found) == PASSES
    assert found[-1].durations_ns == plain[-1].durations_ns


def test_waits_that_are_gone_and_operations_that_are_dropped():
    from program import Program

    p = Program()
    for _ in p.steps(6):
        p.kernel("a", 100)
        p.kernel("b", 300)
        p.sync()
        p.busy(50)
    graph = replayed_window(p.trace()).graph
    kept = [variant(graph) for _ in range(3)]
    b = graph.op_duration_ns == 300_000
    kept[1].dropped[b], kept[1].duration_ns[b] = True, 0
    kept[2].free[graph.waits_for >= 0] = OF_THE_DEVICE
    steps_us = simulate_many(graph, kept).mean(axis=0) / 1_000
    assert steps_us[0] - steps_us[1] == pytest.approx(300, abs=5)
    assert steps_us[2] == pytest.approx(400, abs=5)  # back to back on the device
