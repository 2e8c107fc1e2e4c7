"""The causal profile of programs without a device: what each piece takes, the step is longer by."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.causal.on_cpu import time_of_rows
from pinchpoint.analysis.causal.pieces import Cut
from pinchpoint.analysis.causal.profile import causal, off_path
from pinchpoint.report.documents.causal import causal_document
from pinchpoint.report.pages.causal import causal_page
from pinchpoint.report.tables.build import piece_table
from pinchpoint.report.terminal import render
from pinchpoint.trace import HostKind, RunFacts

MS = 1_000_000
N = 512
SHAPES = {"shapes": f"[[{N},{N}],[{N},{N}]]", "dtypes": '["float","float"]'}
# What one core of a slow server takes: 2 N³ at 8 GFLOP/s, and the call.
PRODUCT_NS = 2 * N**3 / 8 + 20_000


def program():
    """Steps of 200 ms: 60 of Python, 100 in a product and 20 in a view around 10 of a copy."""
    built = TraceBuilder(devices=[])
    for step in range(4):
        at = step * 200 * MS
        built.step(step, at, 200 * MS)
        built.op("train.py(3): train", at, 190 * MS, kind=HostKind.PYTHON)
        built.op("aten::mm", at + 60 * MS, 100 * MS, **SHAPES)
        built.op("aten::to", at + 160 * MS, 30 * MS)
        built.op("aten::copy_", at + 165 * MS, 10 * MS)
    return built.trace()


def test_what_a_piece_takes_the_step_is_longer_by():
    found = causal(program(), "operator")
    assert found.base_ns == 200 * MS
    took = {piece.name: piece.host_ns for piece in found.pieces}
    assert took == {"aten::mm": 100 * MS, "aten::to": 20 * MS, "aten::copy_": 10 * MS}
    for piece in found.pieces:
        assert piece.step_if_free_ns == piece.step_without_host_ns == 200 * MS - piece.host_ns
        assert (piece.hidden_ns, piece.critical_ns, piece.calls) == (0, piece.host_ns, 1.0)


def test_at_the_limit_an_operator_takes_what_a_slow_core_would():
    product, *others = causal(program(), "operator").pieces
    assert product.limit_ns == pytest.approx(PRODUCT_NS, abs=1)
    assert product.step_at_limit_ns == pytest.approx(100 * MS + PRODUCT_NS, abs=1)
    assert [one.limit_ns for one in others] == [None, None]  # no shapes
    assert [one.step_at_limit_ns for one in others] == [200 * MS] * 2


def test_a_function_has_the_operators_that_it_calls():
    (line,) = causal(program(), "line").pieces
    assert (line.name, line.host_ns) == ("train.py(3): train", 190 * MS)
    assert line.limit_ns is None  # operators without a limit take 30 of its 190 ms


def test_of_a_run_that_timed_its_steps_pieces_have_their_share():
    run = RunFacts(unprofiled_step_ns=(100 * MS,) * 20)
    found = causal(replace(program(), run=run), "operator")
    assert found.base_ns == 100 * MS
    assert found.pieces[0].host_ns == 50 * MS


def test_rules_do_not_see_it_and_devices_have_none_of_it():
    assert off_path(program(), Cut.OPERATOR).pieces == ()
    assert causal(program(), "kernel").pieces == ()
    assert time_of_rows(program()).sum() == 3 * 200 * MS  # the first step is cut


def test_the_page_says_what_its_times_are():
    document = causal_document(program(), "operator")
    assert document.on_cpus
    assert document.pieces[0].place == "train (train.py:3)"
    text = " ".join(render(causal_page(document)).split())
    assert "The step with the profiler takes 200 ms" in text
    assert "(2.98 ×)" in text  # times its limit
    assert "one core of a slow server" in text


def test_a_report_has_no_column_of_a_device():
    table = piece_table(program())
    ids = [column.id for column in table.columns]
    assert "device_ns" not in ids
    assert "slow server" in table.note
    assert table.rows[0][:2] == ("train (train.py:3)", 10 * MS)
