"""Execution traces give operators of a Kineto trace of the same run what they were given."""

import json

import pytest

from kineto_documents import document, op
from pinchpoint.cli import main
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.importers.execution_trace import joined
from pinchpoint.importers.open import format_of

TENSOR = [5, 6, 0, 1024, 4, "cuda:0"]
VALUES = [TENSOR, [TENSOR, TENSOR], 3, [1, 1], "<None>"]
SHAPES = [[2, 3], [[2], [4]], [], [[], []], []]
TYPES = [
    "Tensor(float)",
    "GenericList[Tensor(float),Tensor(float)]",
    "Int",
    "GenericList[Int,Int]",
    "None",
]


def flat(number, name):
    given = {"inputs": VALUES, "input_shapes": SHAPES, "input_types": TYPES}
    return {"name": name, "id": number + 9, "rf_id": number, **given}


def nested(number, name):
    given = {"values": VALUES, "shapes": SHAPES, "types": TYPES}
    attributes = [{"name": "rf_id", "type": "uint64", "value": number}]
    return {"name": name, "id": number + 9, "inputs": given, "attrs": attributes}


def written(folder, nodes, schema="1.1.0-chakra.0.0.4"):
    path = folder / "rank0_et.json"
    path.write_text(json.dumps({"schema": schema, "pid": 7, "start_ts": 1, "nodes": nodes}))
    return path


def recorded(folder, *events):
    path = folder / "rank0.json"
    path.write_text(document(*events))
    return path


WITH_RECORD_IDS = (
    op("aten::mm", 0, 100, Record_function_id=4, External_id=90),
    op("aten::add", 200, 100, Record_function_id=5, External_id=91),
)
WITH_EXTERNAL_IDS = (
    op("aten::mm", 0, 100, Record_function_id=0, External_id=4),
    op("aten::add", 200, 100, Record_function_id=0, External_id=5),
)


@pytest.mark.parametrize("node", [flat, nested])
@pytest.mark.parametrize("events", [WITH_RECORD_IDS, WITH_EXTERNAL_IDS])
def test_operators_get_shapes_types_and_values(tmp_path, node, events):
    trace = load(recorded(tmp_path, *events))
    assert not trace.host_ops.known("shapes").any()
    both = joined(trace, written(tmp_path, [node(4, "aten::mm"), node(7, "aten::other")]))
    host = both.host_ops
    assert host.known("shapes").tolist() == [True, False]
    assert json.loads(both.text(host, "shapes", 0)) == [[2, 3], [[2], [4]], [], [], []]
    assert json.loads(both.text(host, "dtypes", 0)) == ["float", "TensorList", "Scalar", "", ""]
    assert json.loads(both.text(host, "values", 0)) == ["", "", "3", "[1, 1]", ""]
    assert host["start_ns"].tolist() == trace.host_ops["start_ns"].tolist()


def test_what_the_trace_says_itself_stays(tmp_path):
    own = op("aten::mm", 0, 100, Record_function_id=4, Input_Dims=[[8, 8]])
    both = joined(load(recorded(tmp_path, own)), written(tmp_path, [flat(4, "aten::mm")]))
    assert json.loads(both.text(both.host_ops, "shapes", 0)) == [[8, 8]]


@pytest.mark.parametrize("nodes", [[], [flat(4, "aten::relu"), flat(5, "aten::sub")]])
def test_another_run_is_refused(tmp_path, nodes):
    with pytest.raises(UnreadableFile, match="not of the same run"):
        joined(load(recorded(tmp_path, *WITH_RECORD_IDS)), written(tmp_path, nodes))


def test_alone_it_says_what_it_needs(tmp_path, capsys):
    path = written(tmp_path, [flat(4, "aten::mm")], "1.0.1")
    assert format_of(path) == "execution trace"
    assert main(["diagnose", str(path)]) == 2
    said = capsys.readouterr().err
    assert "holds no times" in said
    assert "pinchpoint diagnose TRACE.json rank0_et.json" in said


@pytest.mark.parametrize("order", [1, -1])
def test_the_command_takes_both_in_any_order(tmp_path, capsys, order):
    files = [recorded(tmp_path, *WITH_RECORD_IDS), written(tmp_path, [flat(4, "aten::mm")])]
    assert main(["diagnose", *map(str, files[::order]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "pinchpoint.report/1"
