"""Many variants replayed together take what each takes alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pinchpoint as pp
from pinchpoint.analysis.causal.many import Variants, simulate_many
from pinchpoint.analysis.replay.predict import replayed_window
from pinchpoint.analysis.replay.simulate import simulate

DATA = Path(__file__).parents[2] / "data"
RECORDINGS = sorted([*DATA.glob("labelled/*.json.gz"), *DATA.glob("kineto/*.json.gz")])


def variants(graph, factors):
    """Columns: all device work and all gaps scaled by each factor."""
    nodes, ops = len(graph.lane), len(graph.op_rows)
    gap, own, took = graph.gap_ns[:, None], graph.own_ns[:, None], graph.op_duration_ns[:, None]
    return Variants(
        (gap * factors).astype(np.int64),
        np.repeat(own, len(factors), axis=1),
        (took * factors).astype(np.int64),
        np.zeros((ops, len(factors)), np.bool_),
        np.zeros((nodes, len(factors)), np.bool_),
    )


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_each_takes_what_it_takes_alone(path):
    window = replayed_window(pp.load(path))
    if window is None:
        pytest.skip("nothing to replay")
    graph, factors = window.graph, np.array([1.0, 0.5, 0.0])
    together = simulate_many(graph, variants(graph, factors))
    for column, factor in enumerate(factors):
        alone = replace(
            graph,
            gap_ns=(graph.gap_ns * factor).astype(np.int64),
            op_duration_ns=(graph.op_duration_ns * factor).astype(np.int64),
        )
        expected = np.array(simulate(alone).durations_ns)
        # What passes differ by where the first state is still felt.
        assert together[:, column].sum() == pytest.approx(expected.sum(), rel=0.02)


def test_waits_that_are_gone_and_operations_that_are_dropped():
    from program import Program

    p = Program()
    for _ in p.steps(6):
        p.kernel("a", 100)
        p.kernel("b", 300)
        p.sync()
        p.busy(50)
    graph = replayed_window(p.trace()).graph
    kept = variants(graph, np.ones(3))
    b = graph.op_duration_ns == 300_000
    kept.dropped[b, 1], kept.duration_ns[b, 1] = True, 0
    kept.free[graph.waits_for >= 0, 2] = True
    steps_us = simulate_many(graph, kept).mean(axis=0) / 1_000
    assert steps_us[0] - steps_us[1] == pytest.approx(300, abs=5)
    assert steps_us[2] == pytest.approx(400, abs=5)  # back to back on the device
