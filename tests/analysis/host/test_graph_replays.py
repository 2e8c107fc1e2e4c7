"""Kernels of graph replays and the operators that were captured."""

import json

import pytest

from kineto_documents import call, document, kernel, op, written
from pinchpoint.analysis.host.graph_replays import (
    of_operators,
    originating_operators,
    with_captures,
)
from pinchpoint.cli import main
from pinchpoint.importers import load

OPERATORS = ("aten::addmm", "aten::silu", "aten::copy_")


def captured(at, operators=OPERATORS):
    """A capture: launches that run nothing. The copy is the last one."""
    events = [call("cudaStreamBeginCapture", at, 1, at)]
    for number, name in enumerate(operators, 1):
        begins = at + 10 * number
        copies = name == "aten::copy_"
        launch = "cudaMemcpyAsync" if copies else "cudaLaunchKernel"
        events += [op(name, begins, 8), call(launch, begins + 2, 2, at + number)]
    return [*events, call("cudaStreamEndCapture", at + 90, 1, at + 9)]


def replayed(at, number, kinds=("kernel", "kernel", "gpu_memcpy"), **args):
    events = [call("cudaGraphLaunch", at, 5, number)]
    for place, kind in enumerate(kinds):
        runs = kernel(f"k{place}", at + 20 + 10 * place, 9, number, **args)
        events.append(runs | {"cat": kind})
    return events


def operators_of(folder, *events):
    trace = load(written(folder, document(*events)))
    found, host = originating_operators(trace), trace.host_ops
    return [trace.names[host["name"][row]] if row < len(host) else None for row in found.tolist()]


def test_replays_have_the_operators_of_their_capture(tmp_path, capsys):
    events = [*captured(100), *captured(300), *replayed(500, 50), *replayed(600, 60)]
    assert operators_of(tmp_path, *events) == [*OPERATORS, *OPERATORS]
    assert main(["kernels", str(tmp_path / "trace.json"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["kernels"]["rows"]
    assert {"aten::addmm", "aten::silu"} <= {
        word for row in rows for word in json.dumps(row).split('"')
    }


@pytest.mark.parametrize(
    "events",
    [
        [*replayed(50, 50), *captured(100)],  # of a graph that was captured before
        [*captured(100), *captured(300, ("aten::mm", *OPERATORS[1:])), *replayed(500, 50)],
        [*captured(100), *replayed(500, 50, ("kernel",) * 2)],
        [*captured(100), *replayed(500, 50, ("kernel",) * 3)],
        [*captured(100), *replayed(500, 50)[:-1], kernel("k", 700, 5, 50, stream=9)],
    ],
    ids=["before", "two that differ", "fewer", "other kinds", "two streams"],
)
def test_what_fits_no_capture_alone_stays_unknown(tmp_path, events):
    assert set(operators_of(tmp_path, *events)) == {None}


def recordings(folder, *, replay=None):
    """What was recorded while a graph was captured, and while it was replayed."""
    # replayed earlier than the capture: each recording has a clock of its own
    serving = [op("aten::other", 1, 2), *(replay or replayed(50, 50))]
    captures = written(folder, document(*captured(100)), "capture.json")
    return written(folder, document(*serving), "serving.json"), captures


def test_replays_have_the_operators_that_another_recording_captured(tmp_path):
    serving, captures = map(load, recordings(tmp_path))
    joined, count = with_captures(serving, captures)
    assert count == 3
    found = of_operators(joined, lambda rows: rows["name"], -1)
    assert [joined.names[name] for name in found.tolist()] == list(OPERATORS)
    assert joined.names[: len(serving.names)] == serving.names
    assert len(joined.host_ops) == len(serving.host_ops)


def test_a_recording_of_another_graph_gives_nothing(tmp_path):
    serving, captures = map(load, recordings(tmp_path, replay=replayed(50, 50, ("kernel",) * 2)))
    assert with_captures(serving, captures) == (serving, 0)
    assert with_captures(captures, serving) == (captures, 0)


@pytest.mark.parametrize("first", [0, 1])
def test_diagnose_takes_both_recordings(tmp_path, capsys, first):
    files = recordings(tmp_path)
    assert main(["diagnose", *(str(files[at]) for at in (first, 1 - first)), "--json"]) == 0
    out, err = capsys.readouterr()
    assert "3 operations of graphs in serving.json have the operators captured" in err
    kernels = json.loads(out)["tables"]["kernels"]
    at = [column["id"] for column in kernels["columns"]].index("operators")
    assert {row[at] for row in kernels["rows"]} == {"aten::addmm", "aten::silu"}
